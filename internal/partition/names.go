package partition

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// name is what a caller calls one of its writes: kv.RequestID without what belongs
// to the request alone.
type name struct{ client, sequence uint64 }

func nameOf(o kv.RequestID) name { return name{o.ClientID, o.Sequence} }

// nameWindow remembers the names of the newest named writes of a partition and
// the version each was applied at, so that one sent again is answered and not
// applied again (Lee et al., "Implementing Linearizability at Large Scale and Low
// Latency", SOSP 2015, calls them completion records).
//
// A name belongs to what the write did: it is kept with a hash of that, 8 bytes, so that
// another write under the same name is refused and not taken for done. Some 35 bytes a
// name are kept in all.
//
// It is bounded: the oldest name goes when a new one comes. A name that is not
// known belongs to a write of at most version floor, or to none.
//
// Guarded by the partition's turn, since the order of the log decides which of
// two attempts came first.
type nameWindow struct {
	runs  map[runKey]*nameRun
	spare []*nameRun // empty ones for new runs, at most spareRuns
	line  []name     // of the known ones, oldest first from next on
	next  int        // the place of the oldest once line is full
	size  int
	floor kv.SeqNum
}

// nameRun holds the names of one client whose sequences differ in their low byte
// alone. A client counts its writes, so what comes together, and goes together, is in
// few runs, which are in the processor's cache. With an entry of a map for each name,
// and so a walk to memory for each step, a name took 505 ns and now takes 130
// (BenchmarkNameWindow), and names were 7 % of the processor time of a server that
// serves synced writes.
type nameRun struct {
	low      []byte // of the sequences, in no order
	versions []kv.SeqNum
	contents []uint64 // kv.RequestID.Content
}

// spareRuns is enough: once the window is full, runs come as fast as they go.
const spareRuns = 16

type runKey struct{ client, high uint64 }

func (n name) run() (key runKey, low byte) {
	return runKey{n.client, n.sequence >> 8}, byte(n.sequence)
}

func newNameWindow(size int) *nameWindow {
	return &nameWindow{runs: make(map[runKey]*nameRun), size: size}
}

// find returns the version that the write with a name was applied at, and a hash of
// what it did.
func (w *nameWindow) find(n name) (version kv.SeqNum, content uint64, known bool) {
	key, low := n.run()
	if r := w.runs[key]; r != nil {
		if i := bytes.IndexByte(r.low, low); i >= 0 {
			return r.versions[i], r.contents[i], true
		}
	}
	return 0, 0, false
}

// recall decides on a write that has a name: whether it was applied before, and at
// which version. Errors: errForgotten if its outcome is forgotten, and
// kv.ErrRequestIDReused if the name belongs to another write.
func (w *nameWindow) recall(o kv.RequestID) (version kv.SeqNum, known bool, err error) {
	version, content, known := w.find(nameOf(o))
	switch {
	case known && !sameContent(content, o.Content):
		return 0, false, errReused(o)
	case !known && w.forgot(o):
		return 0, false, errForgotten
	}
	return version, known, nil
}

// sameContent reports whether two writes with one name may be the same. A write from
// a log of the first version has no content.
func sameContent(a, b uint64) bool { return a == b || a == 0 || b == 0 }

func errReused(o kv.RequestID) error {
	return fmt.Errorf("%w: client %016x has written something else as its number %d", kv.ErrRequestIDReused, o.ClientID, o.Sequence)
}

// add remembers a name, which is not known yet.
func (w *nameWindow) add(n name, version kv.SeqNum, content uint64) {
	w.put(n, version, content)
	if len(w.line) < w.size {
		w.line = append(w.line, n)
		return
	}
	w.floor = max(w.floor, w.take(w.line[w.next]))
	w.line[w.next] = n
	if w.next++; w.next == w.size {
		w.next = 0
	}
}

func (w *nameWindow) put(n name, version kv.SeqNum, content uint64) {
	key, low := n.run()
	r := w.runs[key]
	if r == nil {
		if last := len(w.spare) - 1; last >= 0 {
			r, w.spare = w.spare[last], w.spare[:last]
		} else {
			r = new(nameRun)
		}
		w.runs[key] = r
	}
	r.low, r.versions, r.contents = append(r.low, low), append(r.versions, version), append(r.contents, content)
}

// take forgets a name, which is known, and returns its version.
func (w *nameWindow) take(n name) kv.SeqNum {
	key, low := n.run()
	r := w.runs[key]
	i, last := bytes.IndexByte(r.low, low), len(r.low)-1
	version := r.versions[i]
	r.low[i], r.versions[i], r.contents[i] = r.low[last], r.versions[last], r.contents[last]
	r.low, r.versions, r.contents = r.low[:last], r.versions[:last], r.contents[:last]
	if last == 0 {
		delete(w.runs, key)
		if len(w.spare) < spareRuns {
			w.spare = append(w.spare, r)
		}
	}
	return version
}

// forgot reports whether a write that is not known may have been applied all the
// same: it was sent before, and what was applied since then is no longer known
// whole. If it was applied, its version is above what its caller had seen.
func (w *nameWindow) forgot(o kv.RequestID) bool { return o.Retried && o.KnownVersion < w.floor }

// Remembered returns the version that a named write was applied at, if it is known
// to have been. Errors: kv.ErrUncertain if its outcome is forgotten, and
// kv.ErrRequestIDReused if the name belongs to another write.
func (p *Partition) Remembered(o kv.RequestID) (version kv.SeqNum, known bool, err error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if version, known, err = p.turn.names.recall(o); known {
		p.stats.duplicates.Add(1)
	}
	return version, known, err
}
