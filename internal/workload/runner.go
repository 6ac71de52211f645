package workload

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Observer receives the progress of a run. Its functions are called one at a time from
// the goroutine of Run, and may be nil.
type Observer struct {
	Preload  func(done, total uint64) // at the beginning of a preload, every second, and at its end
	WarmUp   func(loadgen.Progress)   // every second of the warm-up
	Second   func(loadgen.Sample)
	Interval func(Line) error // an error ends the run
	// Measured is called when the measurement begins, after preload and warm-up, and when
	// it ends.
	Measured func(begins bool)
}

// Run preloads the target, warms it up, measures it, and returns the results. It does
// not close the target.
//
// When ctx ends, the run ends, and what was measured until then is returned without an
// error. The run also ends with the first error of an operation, or the first wrong
// answer (ErrWrongAnswer); the summary is returned with the error and covers the time
// before it. It is nil only if nothing was measured.
func Run(ctx context.Context, target Target, cfg Config, observer Observer) (*Summary, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, ok := target.(BatchGetter); cfg.GetBatch > 1 && !ok {
		return nil, fmt.Errorf("gets of %d keys: the target cannot answer several in one call", cfg.GetBatch)
	}
	pool := cfg.newPool()
	cost, err := prepared.cost(&cfg, func() (generatorCost, error) { return measureCosts(cfg, pool) })
	if err != nil {
		return nil, err
	}
	r := newRun(newShared(&cfg, target, pool))
	if err := r.preload(ctx, observer.Preload); err != nil {
		return nil, fmt.Errorf("preload: %w", err)
	}
	return r.measure(ctx, cost, observer)
}

// run is the state of one Run.
type run struct {
	*shared
	workers []*worker
}

func newRun(s *shared) *run {
	r := &run{shared: s, workers: make([]*worker, s.cfg.Workers)}
	for i := range r.workers {
		r.workers[i] = newWorker(s, i)
	}
	return r
}

// preload puts the first keys, each worker its share, and reports progress to told,
// which may be nil. It fails if ctx ends.
func (r *run) preload(ctx context.Context, told func(done, total uint64)) error {
	total := r.cfg.Preload
	if total == 0 {
		return nil
	}
	err := loadgen.ForEach(ctx, len(r.workers), total, told, func(ctx context.Context, worker int, id uint64) error {
		return untilAccepted(ctx, r.target, func() error { return r.workers[worker].put(ctx, id, 0) })
	})
	r.preloaded = total
	return err
}

// measure runs the mix and summarizes it.
func (r *run) measure(ctx context.Context, cost generatorCost, observer Observer) (*Summary, error) {
	measured := loadgen.Run{
		Clock: r.Clock, Operations: kindNames[:], Cost: cost.all, Verification: cost.verification, DiskBytes: diskBytes(r.target), Server: serverTime(r.target),
		Span:     loadgen.Span{Workers: r.cfg.Workers, Operations: r.cfg.Operations, Warmup: r.cfg.Warmup, Duration: r.cfg.Duration, Interval: r.cfg.Interval},
		Observer: loadgen.Observer{WarmUp: observer.WarmUp, Second: observer.Second, Measured: observer.Measured},
	}
	if observer.Interval != nil {
		measured.Observer.Interval = func(s loadgen.Sample) error { return observer.Interval(newLine(&s, r.cfg.CheckDeletes)) }
	}
	timetable := r.timetable()
	for _, w := range r.workers {
		measured.Workers = append(measured.Workers, loadgen.Worker{Step: w.step, Tally: w.tally, Open: timetable})
	}
	trial, err := measured.Do(ctx)
	trial.Unverified = r.cfg.Unverified
	return newSummary(r.cfg, trial), err
}

// timetable returns that of an open loop, which all workers share; nil for a closed loop.
func (r *run) timetable() *loadgen.Timetable {
	var poisson *rand.Rand
	switch {
	case r.cfg.OpsPerSecond == 0:
		return nil
	case r.cfg.Poisson:
		poisson = rand.New(rand.NewPCG(r.cfg.Seed, 0x706f6973736f6e))
	}
	return loadgen.NewTimetable(r.cfg.OpsPerSecond, r.cfg.Operations, poisson)
}

// diskBytes returns the function that tells the disk usage of a target; nil if the
// target has none.
func diskBytes(target Target) func() (int64, error) {
	if user, ok := target.(DiskUser); ok {
		return user.DiskBytes
	}
	return nil
}

// serverTime returns the function that tells the processor time of a target in another
// process; nil if the target has none.
func serverTime(target Target) func() (loadgen.ServerTime, error) {
	if remote, ok := target.(Remote); ok {
		return remote.ServerTime
	}
	return nil
}
