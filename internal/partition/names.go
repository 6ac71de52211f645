package partition

import "github.com/kvd-db/kvd/internal/kv"

// name is what a caller calls one of its writes: kv.Origin without what belongs
// to the request alone.
type name struct{ client, sequence uint64 }

func nameOf(o kv.Origin) name { return name{o.ClientID, o.Sequence} }

// nameWindow remembers the names of the newest named writes of a partition and
// the version each was applied at, so that one sent again is answered and not
// applied again (Lee et al., "Implementing Linearizability at Large Scale and Low
// Latency", SOSP 2015, calls them completion records).
//
// It is bounded: the oldest name goes when a new one comes. A name that is not
// known belongs to a write of at most version floor, or to none.
//
// Guarded by the partition's turn, since the order of the log decides which of
// two attempts came first.
type nameWindow struct {
	known map[name]kv.SeqNum
	line  []name // of the known ones, oldest first from next on
	next  int    // the place of the oldest once line is full
	size  int
	floor kv.SeqNum
}

func newNameWindow(size int) *nameWindow {
	return &nameWindow{known: make(map[name]kv.SeqNum), size: size}
}

// find returns the version that the write with a name was applied at.
func (w *nameWindow) find(n name) (kv.SeqNum, bool) {
	v, ok := w.known[n]
	return v, ok
}

// add remembers a name, which is not known yet.
func (w *nameWindow) add(n name, version kv.SeqNum) {
	w.known[n] = version
	if len(w.line) < w.size {
		w.line = append(w.line, n)
		return
	}
	oldest := w.line[w.next]
	w.floor = max(w.floor, w.known[oldest])
	delete(w.known, oldest)
	w.line[w.next] = n
	if w.next++; w.next == w.size {
		w.next = 0
	}
}

// forgot reports whether a write that is not known may have been applied all the
// same: it was sent before, and what was applied since then is no longer known
// whole. If it was applied, its version is above what its caller had seen.
func (w *nameWindow) forgot(o kv.Origin) bool { return o.Retried && o.KnownVersion < w.floor }

// Remembered returns the version that a named write was applied at, if it is known
// to have been. The error, kv.ErrUncertain, is that nobody can tell any more.
func (p *Partition) Remembered(o kv.Origin) (version kv.SeqNum, known bool, err error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if version, known = p.turn.names.find(nameOf(o)); known {
		p.stats.duplicates.Add(1)
		return version, true, nil
	}
	if p.turn.names.forgot(o) {
		return 0, false, errForgotten
	}
	return 0, false, nil
}
