package loadgen

import (
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Tally holds what the steps of a worker count while the reporter reads. Counters only
// grow: a warm-up or an interval is subtracted, never reset, so no lock is needed.
//
// Several workers may share a Tally. One for each worker is fastest, unless there are so
// many workers that their tallies exceed the processor's caches.
type Tally struct {
	// Extra counts what the steps want to report besides operations. A step adds to it
	// after Record.
	Extra []atomic.Uint64

	latency   []histogram.Histogram // by operation
	lateness  histogram.Histogram   // how late timers woke the worker
	conflicts atomic.Uint64
	late      lateCount
	refused   atomic.Uint64
	lastEnd   atomic.Int64 // when an operation ended last, on the clock of the run
}

// NewTally returns a Tally for this many kinds of operations and extra counters.
func NewTally(operations, extra int) *Tally {
	return &Tally{latency: make([]histogram.Histogram, operations), Extra: make([]atomic.Uint64, extra)}
}

// Record counts an operation that ended: from its beginning or, in an open loop, from
// when it was due. Times are those of the run's Clock; intended is 0 in a closed loop.
func (t *Tally) Record(operation int, began, ended, intended int64) {
	if intended != 0 {
		began = intended
	}
	t.latency[operation].Record(time.Duration(ended - began))
	t.lastEnd.Store(ended)
}

// Refuse counts an operation that the target refused because of overload.
func (t *Tally) Refuse(ended int64) {
	t.refused.Add(1)
	t.lastEnd.Store(ended)
}

// Conflicts adds to the number of times that transactions had to be repeated.
func (t *Tally) Conflicts(n uint64) { t.conflicts.Add(n) }

// Counts is the sum of all tallies of a run at one time, or the difference of two.
type Counts struct {
	Extra     []uint64
	Conflicts uint64
	Late      Late   // operations of an open loop that began late
	Refused   uint64 // operations that the target refused because of overload

	latency  []histogram.Snapshot
	lateness histogram.Snapshot
}

func newCounts(operations, extra int) *Counts {
	return &Counts{latency: make([]histogram.Snapshot, operations), Extra: make([]uint64, extra)}
}

// NewCounts returns the sum of tallies that count the same.
func NewCounts(tallies ...*Tally) *Counts {
	c := newCounts(len(tallies[0].latency), len(tallies[0].Extra))
	for _, t := range tallies {
		c.add(t)
	}
	return c
}

// add adds the counts of a tally. A step counts an operation before its extra counters;
// add loads them in reverse order, so that extra counts never exceed operations.
func (c *Counts) add(t *Tally) {
	for i := range c.Extra {
		c.Extra[i] += t.Extra[i].Load()
	}
	c.Conflicts += t.conflicts.Load()
	for i := range c.latency {
		c.latency[i].Add(&t.latency[i])
	}
	c.lateness.Add(&t.lateness)
	c.Refused += t.refused.Load()
	c.Late.Busy += t.late.busy.Load()
	c.Late.Woken += t.late.woken.Load()
}

// since returns what was counted after earlier.
func (c *Counts) since(earlier *Counts) *Counts {
	d := newCounts(len(c.latency), len(c.Extra))
	copy(d.latency, c.latency)
	for i := range d.latency {
		d.latency[i].Subtract(&earlier.latency[i])
	}
	copy(d.Extra, c.Extra)
	for i := range d.Extra {
		d.Extra[i] -= earlier.Extra[i]
	}
	d.lateness = c.lateness
	d.lateness.Subtract(&earlier.lateness)
	d.Conflicts = c.Conflicts - earlier.Conflicts
	d.Refused = c.Refused - earlier.Refused
	d.Late = Late{Busy: c.Late.Busy - earlier.Late.Busy, Woken: c.Late.Woken - earlier.Late.Woken}
	return d
}

// Of returns how many operations of one kind have ended.
func (c *Counts) Of(operation int) uint64 { return c.latency[operation].Count() }

// Latency returns the latencies of one kind of operation, borrowed from c.
func (c *Counts) Latency(operation int) *histogram.Snapshot { return &c.latency[operation] }

// Ops returns how many operations have ended.
func (c *Counts) Ops() uint64 {
	var n uint64
	for i := range c.latency {
		n += c.latency[i].Count()
	}
	return n
}

// All returns the latencies of all kinds of operations together.
func (c *Counts) All() *histogram.Snapshot {
	all := new(histogram.Snapshot)
	for i := range c.latency {
		all.Merge(&c.latency[i])
	}
	return all
}

// operations summarizes those with a count.
func (c *Counts) operations(names []string, elapsed time.Duration) []Operation {
	var list []Operation
	for i, name := range names {
		if c.latency[i].Count() > 0 {
			list = append(list, Operation{name, newKind(&c.latency[i], elapsed)})
		}
	}
	return list
}
