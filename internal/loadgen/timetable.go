package loadgen

import (
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
type Timetable struct {
	Rate         uint64 // operations a second of all workers that take turns
	First, Every uint64
}

// pace follows the Timetable of one worker, for that worker only.
type pace struct {
	start    int64  // on the clock of the run
	rate     uint64 // operations a second of all workers
	next     uint64 // number of this worker's next operation
	every    uint64
	now      func() int64
	timer    *time.Timer
	stop     <-chan struct{}
	lateness *histogram.Histogram
}

// due returns when operation n should begin.
func (p *pace) due(n uint64) int64 {
	seconds, rest := n/p.rate, n%p.rate
	return p.start + int64(seconds*1e9+rest*1e9/p.rate)
}

// await waits until the next operation is due and returns that time; ok is false if the
// run stopped first. It records how late the timer fired, which is the generator's
// fault, not the target's.
func (p *pace) await() (due int64, ok bool) {
	due = p.due(p.next)
	p.next += p.every
	wait := due - p.now()
	if wait <= 0 {
		return due, true
	}
	p.timer.Reset(time.Duration(wait))
	select {
	case <-p.timer.C:
		p.lateness.Record(time.Duration(p.now() - due))
		return due, true
	case <-p.stop:
		return 0, false
	}
}
