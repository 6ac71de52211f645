package loadgen

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Timetable makes the loop of a worker open: operation n of the run is due n/Rate
// seconds after its start, regardless of earlier operations. The worker does every
// Every-th operation from First on, so that workers take turns.
//
// A worker that is late begins its next operation at once, and its latency still counts
// from when it was due. So a stall of the target shows in the latency of all operations
// that were due during it. A closed loop omits those, since it sends nothing while it
// waits (coordinated omission: Tene, "How NOT to Measure Latency", 2013), so its
// percentiles are too optimistic.
//
// With Poisson, the operations of a worker are due at random times with exponentially
// distributed gaps, Rate/Every a second on average; those of all workers together are then
// a Poisson process of the whole Rate, like independent callers.
type Timetable struct {
	Rate         uint64 // operations a second of all workers that take turns
	First, Every uint64
	Poisson      *rand.Rand // nil: evenly spaced
}

// lateAfter is how late an operation may begin before it counts as late. Guessed: a
// hundred times what a timer takes on an idle machine.
const lateAfter = time.Millisecond

// Late counts operations of an open loop that began more than a millisecond after they
// were due. Their latencies contain the wait.
type Late struct {
	// Busy operations found their worker waiting for an earlier operation: the target is
	// too slow for the rate, or the workers are too few.
	Busy uint64 `json:"busy"`
	// Woken operations began late though their worker was free: the generator did not get
	// the processor.
	Woken uint64 `json:"woken"`
}

type lateCount struct{ busy, woken atomic.Uint64 }

// pace follows the Timetable of one worker, for that worker only.
type pace struct {
	start    int64  // on the clock of the run
	rate     uint64 // operations a second of all workers
	next     uint64 // number of this worker's next operation
	every    uint64
	random   *rand.Rand // nil: evenly spaced
	at       float64    // if random: when the next operation is due, after start
	now      func() int64
	timer    *time.Timer
	stop     <-chan struct{}
	lateness *histogram.Histogram
	late     *lateCount
}

// due returns when operation n should begin.
func (p *pace) due(n uint64) int64 {
	seconds, rest := n/p.rate, n%p.rate
	return p.start + int64(seconds*1e9+rest*1e9/p.rate)
}

// advance returns when the next operation should begin, and moves on to the one after it.
func (p *pace) advance() int64 {
	if p.random == nil {
		due := p.due(p.next)
		p.next += p.every
		return due
	}
	p.at += p.random.ExpFloat64() * 1e9 * float64(p.every) / float64(p.rate)
	return p.start + int64(p.at)
}

// await waits until the next operation is due and returns that time; ok is false if the
// run stopped first. It records how late the timer fired, which is the generator's
// fault, not the target's.
func (p *pace) await() (due int64, ok bool) {
	due = p.advance()
	wait := due - p.now()
	if wait <= 0 {
		if -wait > int64(lateAfter) {
			p.late.busy.Add(1)
		}
		return due, true
	}
	p.timer.Reset(time.Duration(wait))
	select {
	case <-p.timer.C:
		lateness := time.Duration(p.now() - due)
		p.lateness.Record(lateness)
		if lateness > lateAfter {
			p.late.woken.Add(1)
		}
		return due, true
	case <-p.stop:
		return 0, false
	}
}
