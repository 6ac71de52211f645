package workload

import (
	"context"
	"fmt"
	"time"
)

// Observer receives the progress of a run. Its functions are called one at a time from
// the goroutine of Run, and may be nil.
type Observer struct {
	Preload  func(done, total uint64) // every second of a preload, and at its end
	Second   func(Second)
	Interval func(Line) error // an error ends the run
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
	cost, err := measureCost(cfg)
	if err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	r := newRun(newShared(&cfg, target), observer)
	defer r.cancelOps()
	if err := r.preload(ctx); err != nil {
		return nil, fmt.Errorf("preload: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("preload: %w", ctx.Err())
	}
	return r.measure(ctx, cost)
}

// run is the state of one Run.
type run struct {
	*shared
	*crew
	observer Observer
	workers  []*worker
}

func newRun(s *shared, observer Observer) *run {
	r := &run{
		shared:   s,
		crew:     newCrew(),
		observer: observer,
		workers:  make([]*worker, s.cfg.Workers),
	}
	for i := range r.workers {
		r.workers[i] = newWorker(s, i)
	}
	return r
}

// preload puts the first keys, each worker its share, and reports progress.
func (r *run) preload(ctx context.Context) error {
	total := r.cfg.Preload
	if total == 0 {
		return nil
	}
	done := r.start(len(r.workers), func(i int) error {
		w := r.workers[i]
		for id := uint64(w.index); id < total && !r.stopping.Load(); id += uint64(len(r.workers)) {
			if err := w.put(r.opCtx, id, 0); err != nil {
				return err
			}
		}
		return nil
	})
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			r.preloaded = total
			r.tellPreload()
			return r.err()
		case <-ctx.Done():
			r.finish(done)
			return r.err()
		case <-tick.C:
			r.tellPreload()
		}
	}
}

func (r *run) tellPreload() {
	if r.observer.Preload != nil {
		t := r.totals()
		r.observer.Preload(t.count(kindPut), r.cfg.Preload)
	}
}

// operate runs one worker during the measurement.
func (r *run) operate(w *worker, start int64) error {
	if r.cfg.OpsPerSecond == 0 {
		return r.repeat(w.step, nil, 0)
	}
	p := &pace{
		start:    start,
		rate:     r.cfg.OpsPerSecond,
		next:     uint64(w.index),
		workers:  uint64(len(r.workers)),
		now:      r.now,
		timer:    time.NewTimer(time.Hour),
		stop:     r.stop,
		lateness: &w.rec.lateness,
	}
	defer p.timer.Stop()
	return r.repeat(w.step, p, 0)
}

// totals sums the counts of all workers.
func (r *run) totals() *totals {
	t := new(totals)
	for _, w := range r.workers {
		t.read(&w.rec)
	}
	return t
}
