package loadgen

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Timetable makes a loop open: operation n of the run is due n/Rate seconds after its start,
// regardless of earlier operations. Workers share a Timetable: the next operation belongs to the
// first worker that is free, so a slow operation delays no other while a worker is free.
//
// An operation that no worker is free for begins late, and its latency still counts from when it
// was due. So a stall of the target shows in the latency of all operations that were due
// during it. A closed loop omits those, since it sends nothing while it waits (coordinated
// omission: Tene, "How NOT to Measure Latency", 2013), so its percentiles are too optimistic.
//
// Safe for concurrent use.
type Timetable struct {
	rate  uint64
	limit uint64 // operations in all; 0: no limit

	mu     sync.Mutex
	taken  uint64     // operations
	random *rand.Rand // nil: evenly spaced
	at     float64    // if random: when the last operation that was taken is due, in ns after the start
}

// NewTimetable returns a Timetable for a number of operations a second, and for so many
// operations in all unless limit is 0. With poisson they are due at random times with
// exponentially distributed gaps, 1/rate seconds on average, like those of independent callers;
// otherwise they are evenly spaced.
func NewTimetable(rate, limit uint64, poisson *rand.Rand) *Timetable {
	return &Timetable{rate: rate, limit: limit, random: poisson}
}

// take returns when the next operation is due, in nanoseconds after the start of the run; ok is
// false if there is none.
func (t *Timetable) take() (due int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit > 0 && t.taken == t.limit {
		return 0, false
	}
	n := t.taken
	t.taken++
	if t.random == nil {
		return t.due(n), true
	}
	t.at += t.random.ExpFloat64() * 1e9 / float64(t.rate)
	return int64(t.at), true
}

// due returns when operation n is due if they are evenly spaced.
func (t *Timetable) due(n uint64) int64 {
	seconds, rest := n/t.rate, n%t.rate
	return int64(seconds*1e9 + rest*1e9/t.rate)
}

// mostVisits bounds the calls of rest.
const mostVisits = 1 << 20

// rest calls visit for the operations that are due before end, in nanoseconds after the start of
// the run, and that no worker has taken: with the time, and how many. Random times are replaced
// by evenly spaced ones. Of very many operations, some in a row count as due at once.
func (t *Timetable) rest(end int64, visit func(due int64, count uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap := 1e9 / float64(t.rate)
	first := float64(t.due(t.taken))
	if t.random != nil {
		first = t.at + gap
	}
	total := uint64(max(math.Ceil((float64(end)-first)/gap), 0))
	if t.limit > 0 {
		total = min(total, t.limit-t.taken)
	}
	group := total/mostVisits + 1
	for n := uint64(0); n < total; n += group {
		visit(int64(first+float64(n)*gap), min(group, total-n))
	}
}

// lateAfter is how late an operation may begin before it counts as late. Guessed: a
// hundred times what a timer takes on an idle machine.
const lateAfter = time.Millisecond

// Late counts operations of an open loop that began more than a millisecond after they
// were due. Their latencies contain the wait.
type Late struct {
	// Busy operations found all workers waiting for earlier operations: the target is
	// too slow for the rate, or the workers are too few.
	Busy uint64 `json:"busy"`
	// Woken operations began late though their worker was free: the generator did not get
	// the processor.
	Woken uint64 `json:"woken"`
}

type lateCount struct{ busy, woken atomic.Uint64 }

// pace is what one worker needs to follow a Timetable.
type pace struct {
	*Timetable
	start    int64 // on the clock of the run
	now      func() int64
	timer    *time.Timer
	stop     <-chan struct{}
	lateness *histogram.Histogram
	late     *lateCount
	held     int64 // when the operation was due that was taken but not begun; 0: none
}

// await takes the next operation, waits until it is due and returns that time; ok is false if
// there is none or the run stopped first. It records how late the timer fired, which is the
// generator's fault, not the target's.
func (p *pace) await() (due int64, ok bool) {
	after, ok := p.take()
	if !ok {
		return 0, false
	}
	due = p.start + after
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
		p.held = due
		return 0, false
	}
}
