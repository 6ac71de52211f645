package workload

import (
	"context"
	"fmt"
	"time"
)

// Second is one second of a run, or the rest of one at its end.
type Second struct {
	Elapsed          time.Duration // time since the measurement began, at the end of this second
	OpsPerSecond     float64
	Put, Delete, Get Latency
}

// shortSecond is the shortest window that counts as one second for the slowest second.
const shortSecond = 900 * time.Millisecond

// slowest is the lowest rate of any whole second; 0 while there is none.
type slowest struct {
	seen bool
	rate float64
}

func (s *slowest) add(window time.Duration, rate float64) {
	if window >= shortSecond && (!s.seen || rate < s.rate) {
		s.seen, s.rate = true, rate
	}
}

// measurement is the measured part of a run, for the reporter. All times are on the
// clock of the run; all totals count from its start.
type measurement struct {
	*run
	cost     time.Duration // of the generator, per operation
	began    int64
	baseline *totals // at the start, subtracted from everything

	lastSecond     *totals
	lastSecondAt   int64
	lastInterval   *totals
	lastIntervalAt int64

	slowestOfInterval slowest
	slowestOfRun      slowest
	lastDiskBytes     *int64 // nil if not known
	usage             usage  // of the process, at the start
	stalls            *stallWatch
}

func (r *run) measure(ctx context.Context, cost time.Duration) (*Summary, error) {
	m := r.beginMeasurement(cost)
	start := m.began
	done := r.start(len(r.workers), func(i int) error { return r.operate(r.workers[i], start) })
	goOn := true
	if r.cfg.Warmup > 0 {
		goOn = r.sleepUntil(ctx, start+int64(r.cfg.Warmup))
		m = r.beginMeasurement(cost)
	}
	m.stalls = r.watchStalls()
	reportErr := m.watch(ctx, goOn)
	m.stalls.end()
	r.finish(done)
	if err := r.err(); err != nil {
		reportErr = err
	}
	summary, err := m.conclude()
	if reportErr == nil {
		reportErr = err
	}
	if reportErr != nil {
		summary.Error = reportErr.Error()
	}
	summary.Interrupted = ctx.Err() != nil
	return summary, reportErr
}

func (r *run) beginMeasurement(cost time.Duration) *measurement {
	now := r.now()
	return &measurement{
		run: r, cost: cost, began: now, baseline: r.totals(), usage: readUsage(),
		lastSecond: new(totals), lastSecondAt: now,
		lastInterval: new(totals), lastIntervalAt: now,
	}
}

// watch reports every second and interval except the last, which conclude reports after
// the workers have returned. goOn is false if the run has already ended.
func (m *measurement) watch(ctx context.Context, goOn bool) error {
	perInterval := int(m.cfg.Interval / time.Second)
	for n := 1; goOn; n++ {
		at := time.Duration(n) * time.Second
		if at >= m.cfg.Duration {
			m.sleepUntil(ctx, m.began+int64(m.cfg.Duration))
			return nil
		}
		if goOn = m.sleepUntil(ctx, m.began+int64(at)); !goOn {
			return nil
		}
		now, t := m.second()
		if n%perInterval == 0 {
			if err := m.interval(now, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// sleepUntil waits until a time; it returns false if the run ended first.
func (r *run) sleepUntil(ctx context.Context, at int64) bool {
	return r.sleep(ctx, time.Duration(at-r.now()), nil)
}

// second closes the current second and returns the time, and the counts since the
// measurement began.
func (m *measurement) second() (now int64, sinceStart *totals) {
	t := m.totals()
	t.subtract(m.baseline)
	now = m.now()

	window := *t
	window.subtract(m.lastSecond)
	length := time.Duration(now - m.lastSecondAt)
	rate := perSecond(window.ops(), length)
	m.lastSecond, m.lastSecondAt = t, now
	m.slowestOfInterval.add(length, rate)
	m.slowestOfRun.add(length, rate)
	if m.observer.Second != nil {
		m.observer.Second(Second{
			Elapsed:      time.Duration(now - m.began),
			OpsPerSecond: rate,
			Put:          newLatency(&window.latency[kindPut]),
			Delete:       newLatency(&window.latency[kindDelete]),
			Get:          newLatency(&window.latency[kindGet]),
		})
	}
	return now, t
}

// interval closes the current interval and passes its line to the observer.
func (m *measurement) interval(now int64, t *totals) error {
	window := *t
	window.subtract(m.lastInterval)
	line := Line{
		NanoTime:     now - m.began,
		Put:          window.count(kindPut),
		Delete:       window.count(kindDelete),
		Get:          window.count(kindGet),
		GetFound:     window.getFound,
		OpsPerSecond: perSecond(window.ops(), time.Duration(now-m.lastIntervalAt)),
		PutNanos:     newLatency(&window.latency[kindPut]),
		DeleteNanos:  newLatency(&window.latency[kindDelete]),
		GetNanos:     newLatency(&window.latency[kindGet]),
	}
	if slowest := m.slowestOfInterval; slowest.seen {
		line.SlowestSecond = &slowest.rate
	}
	if m.cfg.CheckDeletes {
		line.DeleteFound = &window.deleteFound
	}
	var err error
	if line.FileSize, err = m.diskBytes(); err != nil {
		return err
	}
	m.lastInterval, m.lastIntervalAt, m.lastDiskBytes = t, now, line.FileSize
	m.slowestOfInterval = slowest{}
	if m.observer.Interval == nil {
		return nil
	}
	return m.observer.Interval(line)
}

// diskBytes asks the target for its disk usage; nil if the target cannot tell.
func (m *measurement) diskBytes() (*int64, error) {
	user, ok := m.target.(DiskUser)
	if !ok {
		return nil, nil
	}
	n, err := user.DiskBytes()
	if err != nil {
		return nil, fmt.Errorf("disk space of the target: %w", err)
	}
	return &n, nil
}

// conclude reports the last second and interval and summarizes the run.
func (m *measurement) conclude() (*Summary, error) {
	now, t := m.second()
	err := m.interval(now, t)
	return m.summarize(time.Duration(now-m.began), t), err
}
