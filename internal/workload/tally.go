package workload

import (
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// tally holds what one worker of a trial counts while the reporter reads. As in
// recorder, counters only grow.
type tally struct {
	latency   []histogram.Histogram // by operation
	lateness  histogram.Histogram
	conflicts atomic.Uint64
}

func newTally(operations int) *tally {
	return &tally{latency: make([]histogram.Histogram, operations)}
}

// record counts an operation: from its beginning or, in an open loop, from when it was
// due.
func (t *tally) record(operation int, began, ended, intended int64) {
	if intended != 0 {
		began = intended
	}
	t.latency[operation].Record(time.Duration(ended - began))
}

// counts is the sum of all tallies at one time, or the difference of two.
type counts struct {
	latency   []histogram.Snapshot
	lateness  histogram.Snapshot
	conflicts uint64
}

func newCounts(operations int) *counts {
	return &counts{latency: make([]histogram.Snapshot, operations)}
}

func (c *counts) add(t *tally) {
	for i := range c.latency {
		c.latency[i].Add(&t.latency[i])
	}
	c.lateness.Add(&t.lateness)
	c.conflicts += t.conflicts.Load()
}

// since returns what was counted after earlier.
func (c *counts) since(earlier *counts) *counts {
	d := newCounts(len(c.latency))
	copy(d.latency, c.latency)
	for i := range d.latency {
		d.latency[i].Subtract(&earlier.latency[i])
	}
	d.lateness = c.lateness
	d.lateness.Subtract(&earlier.lateness)
	d.conflicts = c.conflicts - earlier.conflicts
	return d
}

// ops returns how many operations have ended.
func (c *counts) ops() uint64 {
	var n uint64
	for i := range c.latency {
		n += c.latency[i].Count()
	}
	return n
}
