package commit

import (
	"sync"
	"sync/atomic"
)

// RequestWindow is what the coordinators of a store have in common of the request ids that they
// remember: see requestIDs. It outlives them: the coordinators of the next tenure have the same one.
// Safe for concurrent use.
//
//	N1. The id of a write is known while it is one of the newest so many of the store, for as long
//	    as the coordinators hold no more than twice as many (most).
//	N2. Once an id has been forgotten, the mark of its client is above its sequence.
//
// By N2 a first attempt whose retry was applied long ago is told from a new write: a client gives out
// growing sequences. A new write is taken for such an attempt only if another one, which the client
// began later, has been applied and has left the window before it came.
type RequestWindow struct {
	size  uint64
	given atomic.Uint64 // the place of the newest id: ids are counted, in the order in which they come
	held  atomic.Int64  // ids

	mu     sync.Mutex
	marks  map[uint64]*clientMark // by client
	unused clientMark             // the ring of those without runs; the one used last follows it
	idle   int                    // how many those are
}

// clientMark is the highest sequence of a client's ids that have been forgotten.
type clientMark struct {
	client    uint64
	forgotten atomic.Uint64 // the sequence and one, without branchBit; 0: none

	// Guarded by RequestWindow.mu.
	runs       int // that hold ids of the client
	prev, next *clientMark
}

// branchBit of a sequence says which branch of an execution was applied. It has no part in the order.
const branchBit = 1 << 63

// maxUnusedMarks bounds the marks of clients of which no id is known, with some 80 bytes each: the one
// that was used longest ago goes. Guessed.
const maxUnusedMarks = 16384

// NewRequestWindow returns a window of so many ids, at least one.
func NewRequestWindow(size int) *RequestWindow {
	w := &RequestWindow{size: uint64(size), marks: map[uint64]*clientMark{}}
	w.unused.prev, w.unused.next = &w.unused, &w.unused
	return w
}

// most is how many ids the coordinators hold together, but for the newest of each. They hold as many as
// the window has, unless writes have begun to go to other partitions, and those to which they went
// before have not been trimmed since: see Coordinator.TrimRequestIDs.
func (w *RequestWindow) most() int64 { return 2*int64(w.size) + 1024 }

// left reports whether an id has left the window, as of the time when the newest one had a place.
func (w *RequestWindow) left(id *placedID, newest uint64) bool { return id.place+w.size <= newest }

// hold returns the mark of a client for a new run of its ids.
func (w *RequestWindow) hold(client uint64) *clientMark {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.marks[client]
	switch {
	case m == nil:
		m = &clientMark{client: client}
		w.marks[client] = m
	case m.runs == 0:
		w.unlinkLocked(m)
	}
	m.runs++
	return m
}

// letGo says that a run of a mark is empty.
func (w *RequestWindow) letGo(m *clientMark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.runs--; m.runs > 0 {
		return
	}
	if m.forgotten.Load() == 0 {
		delete(w.marks, m.client) // its ids were retracted
		return
	}
	m.prev, m.next = &w.unused, w.unused.next
	m.prev.next, m.next.prev = m, m
	if w.idle++; w.idle > maxUnusedMarks {
		oldest := w.unused.prev
		w.unlinkLocked(oldest)
		delete(w.marks, oldest.client)
	}
}

func (w *RequestWindow) unlinkLocked(m *clientMark) {
	m.prev.next, m.next.prev = m.next, m.prev
	m.prev, m.next = nil, nil
	w.idle--
}

// passed reports whether an id of a client at or after a sequence has been forgotten, as far as that is
// still known.
func (w *RequestWindow) passed(n requestID) bool {
	w.mu.Lock()
	m := w.marks[n.client]
	w.mu.Unlock()
	return m != nil && m.passed(n.sequence)
}

// passed reports whether the client's id of a sequence may be one that was forgotten.
func (m *clientMark) passed(sequence uint64) bool { return sequence&^branchBit < m.forgotten.Load() }

// forget notes that the id of a sequence is forgotten.
func (m *clientMark) forget(sequence uint64) {
	end := sequence&^branchBit + 1
	for {
		highest := m.forgotten.Load()
		if end <= highest || m.forgotten.CompareAndSwap(highest, end) {
			return
		}
	}
}
