package commit

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// requestID is a kv.RequestID without what belongs to one attempt alone.
type requestID struct{ client, sequence uint64 }

func requestIDOf(o kv.RequestID) requestID { return requestID{o.ClientID, o.Sequence} }

// requestIDs remembers the request ids of the newest writes of a partition that have one,
// and the version each was applied at, so that a write sent again is answered and not
// applied again (Lee et al., "Implementing Linearizability at Large Scale and Low
// Latency", SOSP 2015, calls them completion records).
//
// An id belongs to what the write did: it is kept with a hash of that, 8 bytes, so that
// another write under the same id is refused and not taken for done. Some 50 bytes an id
// are kept in all.
//
// It is bounded: an id goes when it has left the window, which is that of the store. So a partition
// to which all writes go has the whole window, and what an idle one has goes by and by.
// An id that is not known belongs to a write of at most version floor, or to none. What was applied
// up to version begin is known only as far as it was in the log.
//
// Guarded by appendMu, since the order of the log decides which of two attempts came
// first.
type requestIDs struct {
	window  *RequestWindow
	runs    map[runKey]*idRun
	last    *idRun // of runs, which was asked for last, or nil; its key is lastKey
	lastKey runKey
	spare   []*idRun // empty ones for new runs, at most spareRuns
	line    idQueue  // of the known ones
	floor   kv.SeqNum
	begin   kv.SeqNum
}

// idRun holds the ids of one client whose sequences differ in their low byte
// alone. A client counts its writes, so what comes together, and goes together, is in
// few runs, which are in the processor's cache. With an entry of a map for each id,
// and so a walk to memory for each step, an id took 505 ns and now takes 130
// (BenchmarkRequestIDs), and ids were 7 % of the processor time of a server that
// serves synced writes.
type idRun struct {
	mark     *clientMark
	low      []byte // of the sequences, in no order
	versions []kv.SeqNum
	contents []uint64 // kv.RequestID.Content
}

// spareRuns is enough: once the window is full, runs come as fast as they go.
const spareRuns = 16

type runKey struct{ client, high uint64 }

func (n requestID) run() (key runKey, low byte) {
	return runKey{n.client, n.sequence >> 8}, byte(n.sequence)
}

func newRequestIDs(window *RequestWindow) *requestIDs {
	return &requestIDs{runs: make(map[runKey]*idRun), window: window}
}

// find returns the version that the write with an id was applied at, and a hash of
// what it did.
func (w *requestIDs) find(n requestID) (version kv.SeqNum, content uint64, known bool) {
	key, low := n.run()
	if r := w.run(key); r != nil {
		if i := bytes.IndexByte(r.low, low); i >= 0 {
			return r.versions[i], r.contents[i], true
		}
	}
	return 0, 0, false
}

// run returns the run of a key, nil if there is none. A write asks several times for the same.
func (w *requestIDs) run(key runKey) *idRun {
	if w.last != nil && w.lastKey == key {
		return w.last
	}
	r := w.runs[key]
	if r != nil {
		w.last, w.lastKey = r, key
	}
	return r
}

// recall decides on a write that has an id: whether it was applied before, and at
// which version. Errors: errForgotten or a *kv.LateAttemptError if its outcome is forgotten, and
// kv.ErrRequestIDReused if the id belongs to another write.
func (w *requestIDs) recall(o kv.RequestID) (version kv.SeqNum, known bool, err error) {
	version, content, known := w.find(requestIDOf(o))
	switch {
	case known && !sameContent(content, o.Content):
		return 0, false, errReused(o)
	case !known && w.forgot(o):
		return 0, false, errForgotten
	case !known && w.tooLate(o):
		return 0, false, &kv.LateAttemptError{Known: w.begin}
	}
	return version, known, nil
}

// sameContent reports whether two writes with one id may be the same. A write from
// a log of the first version has no content.
func sameContent(a, b uint64) bool { return a == b || a == 0 || b == 0 }

func errReused(o kv.RequestID) error {
	return fmt.Errorf("%w: client %016x has written something else as its number %d", kv.ErrRequestIDReused, o.ClientID, o.Sequence)
}

// add remembers an id, which is not known yet. It forgets at most two others, so that a write after a
// long rest does not pay for all before.
func (w *requestIDs) add(n requestID, version kv.SeqNum, content uint64) {
	w.put(n, version, content)
	place := w.window.given.Add(1)
	held := int64(1)
	for range 2 {
		oldest := w.line.oldest()
		if oldest == nil || !w.window.left(oldest, place) && w.window.held.Load()+held <= w.window.most() {
			break
		}
		held -= w.evict()
	}
	w.line.push(placedID{n, place})
	if held != 0 {
		w.window.held.Add(held)
	}
}

// evict forgets the oldest id of the line, and returns how many that were: none, if it was retracted.
func (w *requestIDs) evict() int64 {
	id := w.line.oldest().id
	w.line.pop()
	if id == (requestID{}) {
		return 0
	}
	key, low := id.run()
	r := w.runs[key]
	r.mark.forget(id.sequence) // before the id is unknown: N2
	w.floor = max(w.floor, w.drop(key, r, low))
	return 1
}

// trim forgets at most so many ids that have left the window, and reports whether there may be more.
func (w *requestIDs) trim(most int) (more bool) {
	newest := w.window.given.Load()
	held := int64(0)
	defer func() { w.window.held.Add(held) }()
	for range most {
		oldest := w.line.oldest()
		if oldest == nil || !w.window.left(oldest, newest) {
			return false
		}
		held -= w.evict()
	}
	return true
}

// retract forgets an id of a write that was not applied. It is one of the newest, if it is
// known at all.
func (w *requestIDs) retract(n requestID) {
	if _, _, known := w.find(n); !known {
		return
	}
	key, low := n.run()
	w.drop(key, w.run(key), low)
	w.window.held.Add(-1)
	w.line.newest(func(place *placedID) bool {
		if place.id != n {
			return true
		}
		place.id = requestID{}
		return false
	})
}

func (w *requestIDs) put(n requestID, version kv.SeqNum, content uint64) {
	key, low := n.run()
	r := w.run(key)
	if r == nil {
		if last := len(w.spare) - 1; last >= 0 {
			r, w.spare = w.spare[last], w.spare[:last]
		} else {
			r = new(idRun)
		}
		r.mark = w.window.hold(n.client)
		w.runs[key] = r
	}
	r.low, r.versions, r.contents = append(r.low, low), append(r.versions, version), append(r.contents, content)
}

// drop removes an id from its run, and returns the version of the write.
func (w *requestIDs) drop(key runKey, r *idRun, low byte) kv.SeqNum {
	i, last := bytes.IndexByte(r.low, low), len(r.low)-1
	version := r.versions[i]
	r.low[i], r.versions[i], r.contents[i] = r.low[last], r.versions[last], r.contents[last]
	r.low, r.versions, r.contents = r.low[:last], r.versions[:last], r.contents[:last]
	if last == 0 {
		delete(w.runs, key)
		if w.last == r {
			w.last = nil
		}
		w.window.letGo(r.mark)
		r.mark = nil
		if len(w.spare) < spareRuns {
			w.spare = append(w.spare, r)
		}
	}
	return version
}

// forgot reports whether a write that is not known may have been applied all the
// same: it was sent before, and what was applied since then is no longer known
// whole. If it was applied, its version is above what its caller had seen.
func (w *requestIDs) forgot(o kv.RequestID) bool { return o.Retried && o.KnownVersion < w.floor }

// tooLate reports whether a retry of a write that is not known may have been applied before the first
// attempt comes, which this one is. Of what was forgotten since the coordinator began the mark of the
// client says so. Of what was applied before, the caller does: its version is above what that had
// seen.
func (w *requestIDs) tooLate(o kv.RequestID) bool {
	if o.Retried {
		return false
	}
	if o.KnownVersion != 0 && o.KnownVersion < w.begin {
		return true
	}
	id := requestIDOf(o)
	key, _ := id.run()
	if r := w.run(key); r != nil {
		return r.mark.passed(id.sequence)
	}
	return w.window.passed(id)
}

// startAfter says that of what was applied up to a version only what was added is known.
func (w *requestIDs) startAfter(version kv.SeqNum) {
	w.floor, w.begin = max(w.floor, version), max(w.begin, version)
}

// Remembered returns the version that a write with a request id was applied at, if it is known
// to have been. Errors: kv.ErrUncertain, which may be a *kv.LateAttemptError, if its outcome is
// forgotten, and kv.ErrRequestIDReused if the id belongs to another write.
func (c *Coordinator) Remembered(o kv.RequestID) (version kv.SeqNum, known bool, err error) {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	if version, known, err = c.line.ids.recall(o); known {
		c.stats.duplicates.Add(1)
	}
	return version, known, err
}

// TrimRequestIDs forgets request ids that have left the window, but not so many that it holds up
// writers for long, and reports whether there may be more. Without it a partition to which no more
// writes go would keep what it knows.
func (c *Coordinator) TrimRequestIDs() (more bool) {
	const step = 1024 // some 100 µs
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	return c.line.ids.trim(step)
}
