package loadgen

import (
	"math"
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
	refused   []atomic.Uint64 // by operation
	lastEnd   atomic.Int64    // when an operation ended last, on the clock of the run
}

// NewTally returns a Tally for this many kinds of operations and extra counters.
func NewTally(operations, extra int) *Tally {
	return &Tally{latency: make([]histogram.Histogram, operations), refused: make([]atomic.Uint64, operations), Extra: make([]atomic.Uint64, extra)}
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
func (t *Tally) Refuse(operation int, ended int64) {
	t.refused[operation].Add(1)
	t.lastEnd.Store(ended)
}

// Conflicts adds to the number of times that transactions had to be repeated.
func (t *Tally) Conflicts(n uint64) { t.conflicts.Add(n) }

// Counts is the sum of all tallies of a run at one time, or the difference of two.
type Counts struct {
	Extra     []uint64
	Conflicts uint64
	Late      Late // operations of an open loop that began late

	latency  []histogram.Snapshot
	refused  []uint64 // by operation
	lateness histogram.Snapshot
	whole    bool               // of all of an open loop, whose missed operations are known
	missed   histogram.Snapshot // see Trial.Missed
}

func newCounts(operations, extra int) *Counts {
	return &Counts{latency: make([]histogram.Snapshot, operations), refused: make([]uint64, operations), Extra: make([]uint64, extra)}
}

// NewCounts returns the sum of tallies that count the same.
func NewCounts(tallies ...*Tally) *Counts {
	c := newCounts(len(tallies[0].latency), len(tallies[0].Extra))
	c.read(tallies[0])
	if len(tallies) == 1 {
		return c
	}
	one := newCounts(len(c.latency), len(c.Extra))
	for _, t := range tallies[1:] {
		one.read(t)
		c.add(one)
	}
	return c
}

// readTries is how often a tally is read until no operation ends meanwhile. Operations that take
// less time than that always do, and are so many that it does not matter.
const readTries = 3

// read makes c what a tally holds. If it can, it reads all counters between two operations of the
// tally: then at most the operation of each worker that is being counted is in some counters and not
// in others, however long the goroutine that reads is interrupted. A step counts an operation before
// its extra counters, and read loads them in reverse order, so that extra counts never exceed
// operations.
func (c *Counts) read(t *Tally) {
	for range readTries {
		last := t.lastEnd.Load()
		c.readOnce(t)
		if t.lastEnd.Load() == last {
			return
		}
	}
}

func (c *Counts) readOnce(t *Tally) {
	for i := range c.Extra {
		c.Extra[i] = t.Extra[i].Load()
	}
	c.Conflicts = t.conflicts.Load()
	for i := range c.latency {
		c.latency[i] = histogram.Snapshot{}
		c.latency[i].Add(&t.latency[i])
	}
	c.lateness = histogram.Snapshot{}
	c.lateness.Add(&t.lateness)
	for i := range c.refused {
		c.refused[i] = t.refused[i].Load()
	}
	c.Late = Late{Busy: t.late.busy.Load(), Woken: t.late.woken.Load()}
}

// add adds other counts.
func (c *Counts) add(other *Counts) {
	for i, n := range other.Extra {
		c.Extra[i] += n
	}
	c.Conflicts += other.Conflicts
	for i := range c.latency {
		c.latency[i].Merge(&other.latency[i])
	}
	c.lateness.Merge(&other.lateness)
	for i, n := range other.refused {
		c.refused[i] += n
	}
	c.Late.Busy += other.Late.Busy
	c.Late.Woken += other.Late.Woken
}

// since returns what was counted after earlier.
func (c *Counts) since(earlier *Counts) *Counts {
	d := newCounts(len(c.latency), len(c.Extra))
	for i := range d.latency {
		d.latency[i].Merge(&c.latency[i])
		d.latency[i].Subtract(&earlier.latency[i])
	}
	copy(d.Extra, c.Extra)
	for i := range d.Extra {
		d.Extra[i] -= earlier.Extra[i]
	}
	d.lateness.Merge(&c.lateness)
	d.lateness.Subtract(&earlier.lateness)
	d.Conflicts = c.Conflicts - earlier.Conflicts
	for i := range d.refused {
		d.refused[i] = c.refused[i] - earlier.refused[i]
	}
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

// Refused returns how many operations the target refused because of overload.
func (c *Counts) Refused() uint64 {
	var n uint64
	for _, refused := range c.refused {
		n += refused
	}
	return n
}

// All returns the latencies of all kinds of operations together, and how long missed ones
// waited.
func (c *Counts) All() *histogram.Snapshot {
	all := c.missed.Clone()
	for i := range c.latency {
		all.Merge(&c.latency[i])
	}
	return all
}

// operations summarizes those that ended, answered or refused.
func (c *Counts) operations(names []string, elapsed time.Duration) []Operation {
	var list []Operation
	for i, name := range names {
		if c.latency[i].Count()+c.refused[i] > 0 {
			o := Operation{name, newKind(&c.latency[i], elapsed)}
			o.Refused, o.DueNanos = c.refused[i], c.due(i)
			list = append(list, o)
		}
	}
	return list
}

// due returns Kind.DueNanos of one kind of operation. Of a part of a run, whose missed operations
// are not known, it returns nil.
func (c *Counts) due(operation int) *Latency {
	missed := c.missed.Count()
	if !c.whole || c.refused[operation]+missed == 0 {
		return nil
	}
	due := c.latency[operation].Clone()
	ended := due.Count() + c.refused[operation]
	share := float64(ended) / float64(c.Ops()+c.Refused())
	c.missed.Each(func(_, waited time.Duration, n uint64) {
		due.Record(waited, uint64(math.Ceil(share*float64(n))))
	})
	return newDueLatency(due, c.refused[operation])
}

// allDue returns the latencies of all that was due, as Kind.DueNanos; nil if nothing was refused.
func (c *Counts) allDue() *Latency {
	refused := c.Refused()
	if refused == 0 {
		return nil
	}
	return newDueLatency(c.All(), refused)
}
