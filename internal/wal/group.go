package wal

import (
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

const (
	// groupBytes closes a group: a larger write gains nothing, and the buffer is reused for
	// other groups.
	groupBytes = 1 << 20
	// maxQueuedBytes is how much may be queued before Flush waits.
	maxQueuedBytes = 32 << 20
	// maxSpareGroups bounds the memory that an idle queue keeps.
	maxSpareGroups = 4
)

// group is the records that one write adds to the log: a data frame whose header is
// filled in last.
type group struct {
	buf     []byte // room for the header, then the records
	records uint32
	units   uint32 // of the records
	asked   uint32 // of these, of records that ask for a sync
	last    kv.SeqNum
	end     Pos
	charged int64   // to Log.mu.space, for its records
	urgent  bool    // a caller waits for the write, not for the sync
	early   []Waker // to wake after the write
	late    []Waker // to wake after the sync
	timed   []timed // its records that have a trace
}

// timed is a record whose trace receives the times of its write and, if it asked for one,
// of its sync.
type timed struct {
	trace *trace.Batch
	sync  bool
	held  bool
}

// queue holds the groups to be written, oldest first; records are added to the last one.
// Guarded by Log.mu.
type queue struct {
	groups []*group
	bytes  int // of all groups
	spare  []*group
}

func (q *queue) empty() bool { return len(q.groups) == 0 }

// urgent reports whether a caller waits for the write of any group.
func (q *queue) urgent() bool {
	for _, g := range q.groups {
		if g.urgent {
			return true
		}
	}
	return false
}

// add copies a record to the last group, or to a new one if that is full.
func (q *queue) add(base kv.SeqNum, units uint32, payload []byte, end Pos) *group {
	if n := len(q.groups); n == 0 || len(q.groups[n-1].buf) >= groupBytes {
		q.groups = append(q.groups, q.newGroup())
	}
	g := q.groups[len(q.groups)-1]
	g.buf = appendRecord(g.buf, base, units, payload)
	g.records++
	g.units += units
	g.last = base + kv.SeqNum(units) - 1
	g.end = end
	q.bytes += recordHeaderBytes + len(payload)
	return g
}

func (q *queue) newGroup() *group {
	if n := len(q.spare); n > 0 {
		g := q.spare[n-1]
		q.spare[n-1] = nil // so that a group too large to be kept can be freed
		q.spare = q.spare[:n-1]
		return g
	}
	return &group{buf: make([]byte, frameHeaderBytes)}
}

// hold notes in the traces that the records wait for a running sync.
func (q *queue) hold() {
	for _, g := range q.groups {
		for i := range g.timed {
			if r := &g.timed[i]; !r.held {
				r.held = true
				r.trace.Held.Set(time.Now())
			}
		}
	}
}

// release notes in the traces of held records that they are about to be written.
func (g *group) release() {
	if len(g.timed) == 0 {
		return
	}
	now := time.Now()
	for _, r := range g.timed {
		if r.held {
			r.trace.Released.Set(now)
		}
	}
}

// take removes the oldest group and returns it; nil if there is none.
func (q *queue) take() *group {
	if q.empty() {
		return nil
	}
	g := q.groups[0]
	q.bytes -= len(g.buf) - frameHeaderBytes
	q.groups = slices.Delete(q.groups, 0, 1)
	return g
}

// recycle keeps the memory of a group that take returned for new groups.
func (q *queue) recycle(g *group) {
	if len(q.spare) == maxSpareGroups || cap(g.buf) > 2*groupBytes {
		return
	}
	clear(g.early)
	clear(g.late)
	clear(g.timed)
	*g = group{buf: g.buf[:frameHeaderBytes], early: g.early[:0], late: g.late[:0], timed: g.timed[:0]}
	q.spare = append(q.spare, g)
}

// drain empties the queue and returns the wakers of its groups.
func (q *queue) drain() (wakers [][]Waker) {
	for _, g := range q.groups {
		wakers = append(wakers, g.early, g.late)
	}
	q.groups, q.bytes = nil, 0
	return wakers
}
