package loadgen

import (
	"context"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Step does one operation and counts it. intended is when the operation was due in an
// open loop, on the clock of the run, and 0 in a closed loop. An error ends the run.
type Step func(ctx context.Context, intended int64) error

// Worker does one operation after the other.
type Worker struct {
	Step  Step
	Tally *Tally     // where Step counts
	Open  *Timetable // when operations are due, for all workers that share it; nil: when the previous one ended
}

// Observer receives the progress of a run. Its functions are called one at a time from
// the goroutine of Do, and may be nil.
type Observer struct {
	// Measured is called when the measurement begins, after the warm-up, and when it
	// ends, before the last operations have ended.
	Measured func(begins bool)
	WarmUp   func(Progress) // every second of the warm-up
	Second   func(Sample)
	Interval func(Sample) error // an error ends the run
}

// Run runs its workers concurrently and measures them. Use it once.
type Run struct {
	Clock      Clock
	Span       Span
	Operations []string // names of the operations that the tallies count
	Workers    []Worker
	Observer   Observer
	// Cost is the generator's time for one operation: see BestRound.
	Cost time.Duration
	// Verification is the part of Cost that checks the answers.
	Verification time.Duration
	// DiskBytes returns the disk usage of the target, and is called once a second during
	// operations; nil: not known. Its first error ends the run at the next interval.
	DiskBytes func() (int64, error)
	// Server returns the processor time that the server under test has used; nil: not known.
	// It is called before operations, and once a second during them. After its first error it
	// is not called again, and the time is not known.
	Server func() (ServerTime, error)

	crew    *crew
	tallies []*Tally // of the workers, each once
	held    []int64  // by worker: see pace

	start          int64 // of the workers
	began          int64
	baseline       *Counts // at the start of the measurement, subtracted from everything
	second         *Counts // at the end of the last second
	secondAt       int64
	interval       *Counts
	intervalAt     int64
	usage          usage
	processors     processors // at the end of the last second
	server         serverWatch
	dataBytes      *int64
	diskErr        error // the first one of DiskBytes
	slowestOfRun   slowest
	slowestOfLines slowest
	stalls         *stallWatch
}

// slowest is the lowest rate of any whole second; 0 while there is none.
type slowest struct {
	seen bool
	rate float64
}

// shortSecond is the shortest window that counts as one second for the slowest second.
const shortSecond = 900 * time.Millisecond

func (s *slowest) add(window time.Duration, rate float64) {
	if window >= shortSecond && (!s.seen || rate < s.rate) {
		s.seen, s.rate = true, rate
	}
}

// get returns the rate, nil if there was no whole second.
func (s *slowest) get() *float64 {
	if !s.seen {
		return nil
	}
	rate := s.rate
	return &rate
}

// Do runs the workers and returns the result, also with an error. When ctx ends, the run
// ends without an error, and the result is marked as interrupted.
func (r *Run) Do(ctx context.Context) (*Trial, error) {
	r.crew = newCrew()
	defer r.crew.cancelOps()
	r.collectTallies()
	r.begin()
	r.start, r.held = r.began, make([]int64, len(r.Workers))
	done := r.crew.start(len(r.Workers), r.operate)
	goOn := true
	if r.Span.Warmup > 0 {
		goOn = r.warmUp(ctx, done)
		r.begin()
	}
	r.measured(true)
	r.stalls = r.watchStalls()
	reportErr := r.watch(ctx, done, goOn)
	r.measured(false)
	r.crew.finish(done)
	r.stalls.end() // an operation may be stuck when the time is up
	err := r.crew.err()
	if err == nil {
		err = reportErr
	}
	now, total := r.closeSecond()
	if lineErr := r.closeInterval(now, total); err == nil {
		err = lineErr
	}
	result := r.conclude(now, total)
	if err != nil {
		result.Error = err.Error()
	}
	result.Interrupted = ctx.Err() != nil
	return result, err
}

// warmUp waits for the end of the warm-up; it returns false if the run ended first.
func (r *Run) warmUp(ctx context.Context, done <-chan struct{}) bool {
	until := func(at time.Duration) bool {
		return r.crew.sleep(ctx, time.Duration(r.began+int64(at)-r.Clock.Now()), done)
	}
	for at := time.Second; at < r.Span.Warmup; at += time.Second {
		if !until(at) {
			return false
		}
		if r.Observer.WarmUp != nil {
			r.Observer.WarmUp(Progress{
				What: "warming up", Things: "ms", Done: uint64(at.Milliseconds()), Total: uint64(r.Span.Warmup.Milliseconds()), Elapsed: at,
			})
		}
	}
	return until(r.Span.Warmup)
}

func (r *Run) collectTallies() {
	seen := make(map[*Tally]bool)
	for i := range r.Workers {
		if t := r.Workers[i].Tally; !seen[t] {
			seen[t] = true
			r.tallies = append(r.tallies, t)
		}
	}
}

func (r *Run) measured(begins bool) {
	if r.Observer.Measured != nil {
		r.Observer.Measured(begins)
	}
}

// operate runs one worker.
func (r *Run) operate(i int) error {
	w := &r.Workers[i]
	if w.Open == nil {
		limit, any := r.Span.share(i)
		if !any {
			return nil
		}
		return r.crew.repeat(w.Step, nil, limit)
	}
	p := &pace{
		Timetable: w.Open, start: r.start, now: r.Clock.Now,
		timer: time.NewTimer(time.Hour), stop: r.crew.stop, lateness: &w.Tally.lateness, late: &w.Tally.late,
	}
	defer p.timer.Stop()
	err := r.crew.repeat(w.Step, p, 0)
	r.held[i] = p.held
	return err
}

// missed records in s how long the operations had waited at the end of the run that were due before
// it, and that no worker began. Call it when all workers have returned.
func (r *Run) missed(s *histogram.Snapshot) {
	end := r.Clock.at(r.crew.halted)
	miss := func(due int64, count uint64) {
		if due < end {
			s.Record(time.Duration(end-due), count)
		}
	}
	seen := make(map[*Timetable]bool)
	for i := range r.Workers {
		t := r.Workers[i].Open
		if t == nil {
			continue
		}
		if held := r.held[i]; held != 0 {
			miss(held, 1)
		}
		if !seen[t] {
			seen[t] = true
			t.rest(end-r.start, func(due int64, count uint64) { miss(r.start+due, count) })
		}
	}
}

func (r *Run) begin() {
	r.server.begin(r.Server, r.Clock)
	r.began = r.Clock.Now()
	r.baseline = NewCounts(r.tallies...)
	r.second, r.secondAt = r.baseline.since(r.baseline), r.began
	r.interval, r.intervalAt = r.second, r.began
	r.usage = readUsage()
	r.processors = r.usage.processors
}

// watch reports every second and interval except the last. goOn is false if the run has
// already ended.
func (r *Run) watch(ctx context.Context, done <-chan struct{}, goOn bool) error {
	perInterval := int(r.Span.Interval / time.Second)
	for n := 1; goOn; n++ {
		at, last := time.Duration(n)*time.Second, false
		if d := r.Span.Duration; d > 0 && at >= d {
			at, last = d, true
		}
		if !r.crew.sleep(ctx, time.Duration(r.began+int64(at)-r.Clock.Now()), done) || last {
			return nil
		}
		now, total := r.closeSecond()
		if perInterval > 0 && n%perInterval == 0 {
			if err := r.closeInterval(now, total); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeSecond reports the time since the last second. It returns the current time and
// the counts since the measurement began.
func (r *Run) closeSecond() (now int64, total *Counts) {
	total = NewCounts(r.tallies...).since(r.baseline)
	now = r.Clock.Now()
	window, length := total.since(r.second), time.Duration(now-r.secondAt)
	r.second, r.secondAt = total, now
	r.lookAtDisk()
	sample := r.sample(now, length, window, total)
	processors := readProcessors()
	sample.OwnCPU, sample.OtherCPU = processors.since(&r.processors)
	r.processors = processors
	sample.ServerCPU = r.server.second(r.Server, r.Clock)
	r.slowestOfRun.add(length, sample.OpsPerSecond)
	r.slowestOfLines.add(length, sample.OpsPerSecond)
	if r.Observer.Second != nil {
		r.Observer.Second(sample)
	}
	return now, total
}

// sample describes what happened in a window that ended now.
func (r *Run) sample(now int64, length time.Duration, window, total *Counts) Sample {
	return Sample{
		NanoTime: now - r.began, OpsPerSecond: perSecond(window.Ops(), length), Conflicts: total.Conflicts,
		FileSize: r.dataBytes, Operations: window.operations(r.Operations, length), Counts: window,
	}
}

func (r *Run) lookAtDisk() {
	if r.DiskBytes == nil || r.diskErr != nil {
		return
	}
	n, err := r.DiskBytes()
	if err != nil {
		r.diskErr = fmt.Errorf("disk space of the target: %w", err)
		return
	}
	r.dataBytes = &n
}

// closeInterval passes the line since the previous one to the observer.
func (r *Run) closeInterval(now int64, total *Counts) error {
	if r.diskErr != nil {
		return r.diskErr
	}
	window, length := total.since(r.interval), time.Duration(now-r.intervalAt)
	r.interval, r.intervalAt = total, now
	line := r.sample(now, length, window, total)
	line.SlowestSecond = r.slowestOfLines.get()
	r.slowestOfLines = slowest{}
	if r.Observer.Interval == nil {
		return nil
	}
	return r.Observer.Interval(line)
}

func (r *Run) conclude(now int64, total *Counts) *Trial {
	elapsed, ops, used := time.Duration(now-r.began), total.Ops(), readUsage()
	open := r.Workers[0].Open
	if open != nil { // of an open loop beside closed ones, the operations are not those of all workers
		total.whole = true
		r.missed(&total.missed)
	}
	t := &Trial{
		Seconds:           elapsed.Seconds(),
		Ops:               ops,
		OpsPerSecond:      perSecond(ops, elapsed),
		Operations:        total.operations(r.Operations, elapsed),
		Conflicts:         total.Conflicts,
		SlowestSecond:     r.slowestOfRun.get(),
		LongestStallNanos: r.stalls.longest.Nanoseconds(),
		Generator:         newGenerator(r.Cost, r.Verification, total, len(r.Workers), elapsed),
		PeakRSSBytes:      used.peakRSS,
		DataBytes:         r.dataBytes,
		Refused:           total.Refused(),
		All:               NewLatency(total.All()),
		AllDue:            total.allDue(),
		Counts:            total,
	}
	if open != nil {
		missed := newKind(&total.missed, elapsed)
		t.OfferedPerSecond, t.Late, t.Missed = open.rate, &total.Late, &missed
	}
	t.OwnCPU, t.OtherCPU = used.since(&r.usage.processors)
	t.Server = r.server.use(elapsed, ops)
	if ops > 0 {
		t.CPUMicrosPerOp = float64((used.cpu - r.usage.cpu).Microseconds()) / float64(ops)
		t.Generator.VerificationShare = Share(float64(r.Verification.Nanoseconds()), 1000*t.CPUMicrosPerOp)
	}
	return t
}

// lastEnd returns when the last operation of any worker ended.
func (r *Run) lastEnd() int64 {
	var last int64
	for _, t := range r.tallies {
		last = max(last, t.lastEnd.Load())
	}
	return last
}
