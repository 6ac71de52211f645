package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Round is one pass over all cells of an experiment.
type Round struct {
	Number  int // from 0 on
	Options *Options

	experiment *Experiment
	result     *results.Result
	began      time.Time // of the experiment
	before     int       // runs that were there then
	measured   int       // runs since, of all rounds
	// state is that of the store that is being measured; nil if it cannot tell.
	state func() *results.StoreState
}

// Cell returns the cell of the result for a cell of the experiment.
func (r *Round) Cell(i int) *results.Cell { return r.result.Cells[i] }

// Done reports whether the run of a cell was measured before the experiment was resumed.
func (r *Round) Done(cell int) bool { return len(r.Cell(cell).Runs) > r.Number }

// done reports whether those of all cells were.
func (r *Round) done() bool {
	for i := range r.experiment.Cells {
		if !r.Done(i) {
			return false
		}
	}
	return true
}

// Measure adds a run to a cell. do measures it: it passes each second to observe, and
// returns what there is also with an error.
func (r *Round) Measure(ctx context.Context, cell int, operations []string, do func(observe func(loadgen.Sample)) (*loadgen.Trial, error)) (*results.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if save := r.Options.Save; save != nil && r.measured > 0 {
		save(r.result)
	}
	p := r.progress(cell)
	r.Options.Progress(p)
	collector := results.NewCollector(operations)
	collector.State = func() *results.StoreState {
		if r.state == nil {
			return nil
		}
		return r.state()
	}
	defer func() { r.state = nil }()
	trial, err := do(func(s loadgen.Sample) {
		collector.Second(s)
		p.Sample = &s
		r.Options.Progress(p)
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", r.Cell(cell).Name(), err)
	}
	if trial == nil {
		return nil, err
	}
	run := collector.Run(trial, nil)
	r.Cell(cell).Runs = append(r.Cell(cell).Runs, run)
	r.measured++
	return run, err
}

func (r *Round) progress(cell int) Progress {
	p := Progress{Run: r.before + r.measured + 1, Runs: r.Options.Runs * len(r.experiment.Cells), Cell: r.Cell(cell)}
	if r.measured > 0 {
		p.Left = time.Since(r.began) / time.Duration(r.measured) * time.Duration(p.Runs-r.before-r.measured)
	}
	return p
}

// Doing returns a function that tells what is done for the next run, of a cell, besides its
// measurement.
func (r *Round) Doing(cell int) func(loadgen.Progress) {
	run := r.progress(cell).Run
	return func(doing loadgen.Progress) {
		p := r.progress(cell)
		p.Run, p.Doing = run, &doing
		r.Options.Progress(p)
	}
}

// bySecond returns a function that tells the progress of a run that is not measured.
func bySecond(told func(loadgen.Progress), what string, lasts time.Duration) func(loadgen.Sample) {
	told(loadgen.Progress{What: what})
	return func(s loadgen.Sample) {
		at := time.Duration(s.NanoTime)
		told(loadgen.Progress{What: what, Things: "ms", Done: uint64(min(at, lasts).Milliseconds()), Total: uint64(lasts.Milliseconds()), Elapsed: at})
	}
}

// measureAlone measures a cell on a store of its own.
func (r *Round) measureAlone(ctx context.Context, i int) (err error) {
	c, cell := &r.experiment.Cells[i], r.Cell(i)
	var store Store
	var activity any
	var stages []results.Stages
	run, err := r.Measure(ctx, i, workload.Operations(), func(observe func(loadgen.Sample)) (trial *loadgen.Trial, err error) {
		if store, err = r.Options.Open(c.Setup); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		r.state = store.State
		config := c.Config
		config.Seed += uint64(r.Number) // so that runs draw other operations
		summary, err := workload.Run(ctx, store.Target, config, workload.Observer{Second: observe, Measured: store.Measured})
		if summary == nil {
			return nil, err
		}
		cell.Workload, cell.Target = summary.Workload, store.Info
		if store.Activity != nil {
			activity = store.Activity()
		}
		if store.Stages != nil {
			stages = store.Stages()
		}
		return summary.Trial, err
	})
	if run != nil {
		run.Activity, run.Stages = activity, stages
	}
	return err
}
