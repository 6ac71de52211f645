package workload

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// TrialObserver receives the progress of a trial. Its functions are called one at a
// time from the goroutine that runs the trial, and may be nil.
type TrialObserver struct {
	Second   func(Sample)
	Interval func(Sample) error // an error ends the trial
}

// member is one worker of a trial.
type member struct {
	step  func(ctx context.Context, intended int64) error
	tally *tally
	rate  uint64 // operations a second by the clock; 0: closed loop
}

// trial runs its members concurrently and measures them.
type trial struct {
	*crew
	clock
	span       Span
	target     Target
	operations []string // names of the operations that the tallies count
	members    []member
	cost       time.Duration // of the generator, per operation
	observer   TrialObserver

	began          int64
	baseline       *counts // at the start of the measurement, subtracted from everything
	second         *counts // at the end of the last second
	secondAt       int64
	interval       *counts
	intervalAt     int64
	usage          usage
	dataBytes      *int64
	slowestOfRun   slowest
	slowestOfLines slowest
}

// add adds a worker that begins an operation when the previous one ended.
func (t *trial) add(counted *tally, step func(ctx context.Context, intended int64) error) {
	t.members = append(t.members, member{step: step, tally: counted})
}

// addPaced adds a worker that begins operations by the clock.
func (t *trial) addPaced(counted *tally, step func(ctx context.Context, intended int64) error, rate uint64) {
	t.members = append(t.members, member{step: step, tally: counted, rate: rate})
}

// run returns the result of the trial, also with an error. When ctx ends, the trial
// ends without an error.
func (t *trial) run(ctx context.Context) (*Trial, error) {
	t.crew = newCrew()
	defer t.cancelOps()
	t.begin()
	start := t.began
	done := t.start(len(t.members), func(i int) error { return t.operate(i, start) })
	goOn := true
	if t.span.Warmup > 0 {
		goOn = t.sleep(ctx, t.span.Warmup, done)
		t.begin()
	}
	reportErr := t.watch(ctx, done, goOn)
	t.finish(done)
	err := t.err()
	if err == nil {
		err = reportErr
	}
	now, total := t.closeSecond()
	if lineErr := t.closeInterval(now, total); err == nil {
		err = lineErr
	}
	result := t.conclude(now, total)
	if err != nil {
		result.Error = err.Error()
	}
	result.Interrupted = ctx.Err() != nil
	return result, err
}

// operate runs one member during the trial.
func (t *trial) operate(i int, start int64) error {
	m := &t.members[i]
	limit, any := t.span.share(i)
	if !any {
		return nil
	}
	if m.rate == 0 {
		return t.repeat(m.step, nil, limit)
	}
	p := &pace{
		start: start, rate: m.rate, workers: 1, now: t.now,
		timer: time.NewTimer(time.Hour), stop: t.stop, lateness: &m.tally.lateness,
	}
	defer p.timer.Stop()
	return t.repeat(m.step, p, limit)
}

func (t *trial) totals() *counts {
	c := newCounts(len(t.operations))
	for i := range t.members {
		c.add(t.members[i].tally)
	}
	return c
}

func (t *trial) begin() {
	t.began = t.now()
	t.baseline = t.totals()
	t.second, t.secondAt = newCounts(len(t.operations)), t.began
	t.interval, t.intervalAt = t.second, t.began
	t.usage = readUsage()
}

// watch reports every second and interval except the last. goOn is false if the trial
// has already ended.
func (t *trial) watch(ctx context.Context, done <-chan struct{}, goOn bool) error {
	perInterval := int(t.span.Interval / time.Second)
	for n := 1; goOn; n++ {
		at, last := time.Duration(n)*time.Second, false
		if d := t.span.Duration; d > 0 && at >= d {
			at, last = d, true
		}
		if !t.sleep(ctx, time.Duration(t.began+int64(at)-t.now()), done) || last {
			return nil
		}
		now, total := t.closeSecond()
		if n%perInterval == 0 {
			if err := t.closeInterval(now, total); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeSecond reports the time since the last second. It returns the current time and
// the counts since the measurement began.
func (t *trial) closeSecond() (now int64, total *counts) {
	total = t.totals().since(t.baseline)
	now = t.now()
	window, length := total.since(t.second), time.Duration(now-t.secondAt)
	t.second, t.secondAt = total, now
	rate := perSecond(window.ops(), length)
	t.slowestOfRun.add(length, rate)
	t.slowestOfLines.add(length, rate)
	if t.observer.Second != nil {
		t.observer.Second(Sample{
			NanoTime: now - t.began, OpsPerSecond: rate, Conflicts: total.conflicts,
			Operations: window.operations(t.operations, length),
		})
	}
	return now, total
}

// closeInterval passes the line since the previous one to the observer.
func (t *trial) closeInterval(now int64, total *counts) error {
	if user, ok := t.target.(DiskUser); ok {
		n, err := user.DiskBytes()
		if err != nil {
			return fmt.Errorf("disk space of the target: %w", err)
		}
		t.dataBytes = &n
	}
	window, length := total.since(t.interval), time.Duration(now-t.intervalAt)
	t.interval, t.intervalAt = total, now
	line := Sample{
		NanoTime: now - t.began, OpsPerSecond: perSecond(window.ops(), length), Conflicts: total.conflicts,
		FileSize: t.dataBytes, Operations: window.operations(t.operations, length),
	}
	if slowest := t.slowestOfLines; slowest.seen {
		line.SlowestSecond = &slowest.rate
	}
	t.slowestOfLines = slowest{}
	if t.observer.Interval == nil {
		return nil
	}
	return t.observer.Interval(line)
}

func (t *trial) conclude(now int64, total *counts) *Trial {
	elapsed, ops, used := time.Duration(now-t.began), total.ops(), readUsage()
	result := &Trial{
		Seconds:      elapsed.Seconds(),
		Ops:          ops,
		OpsPerSecond: perSecond(ops, elapsed),
		Operations:   total.operations(t.operations, elapsed),
		Conflicts:    total.conflicts,
		Generator:    Generator{NanosPerOp: t.cost.Nanoseconds()},
		PeakRSSBytes: used.peakRSS,
		DataBytes:    t.dataBytes,
	}
	if t.slowestOfRun.seen {
		result.SlowestSecond = &t.slowestOfRun.rate
	}
	if late := newLatency(&total.lateness); total.lateness.Count() > 0 {
		result.Generator.LatenessNanos = &late
	}
	if ops > 0 {
		result.CPUMicrosPerOp = float64((used.cpu - t.usage.cpu).Microseconds()) / float64(ops)
	}
	if processors := min(len(t.members), runtime.GOMAXPROCS(0)); elapsed > 0 {
		result.Generator.Share = float64(t.cost) * float64(ops) / (float64(elapsed) * float64(processors))
	}
	return result
}
