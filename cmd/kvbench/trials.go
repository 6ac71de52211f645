package main

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// loadWorkers load and audit: more than any partition's micro-batch needs to be
// busy.
const loadWorkers = 64

// trials is the state of one command: its bench, its output and its results.
type trials struct {
	*workload.Bench
	command  *cobra.Command
	options  *trialOptions
	settings any
	target   workload.Target
	info     *targetInfo
	report   *lineReport
	live     *liveView
	rows     []trialRow
}

// trialRow is one trial that ended.
type trialRow struct {
	trialLabel
	trial *loadgen.Trial
}

// trialSummary is the result of a trial in the report.
type trialSummary struct {
	trialLabel
	Settings    any                 `json:"settings"`
	Target      *targetInfo         `json:"target"`
	Environment loadgen.Environment `json:"environment"`
	*loadgen.Trial
}

// recordSettings are those that every trial of a command shares.
type recordSettings struct {
	Records      uint64  `json:"records"`
	KeyBytes     int     `json:"keyBytes"`
	ValueBytes   int     `json:"valueBytes"`
	Theta        float64 `json:"theta,omitempty"` // of the core workloads; 0 where there is no flag for it
	Compressible float64 `json:"compressible,omitempty"`
	Seed         uint64  `json:"seed"`
	// The trial ends after the duration, or after so many operations.
	WarmupSeconds   float64 `json:"warmupSeconds,omitempty"`
	DurationSeconds float64 `json:"durationSeconds,omitempty"`
	Operations      uint64  `json:"operations,omitempty"`
}

func (o *trialOptions) settings() recordSettings {
	return recordSettings{
		Records: o.records.Count, KeyBytes: workload.RecordKeyBytes, ValueBytes: o.records.ValueBytes,
		Theta: o.records.Theta, Compressible: o.records.Compressible, Seed: o.records.Seed,
		WarmupSeconds: o.span.Warmup.Seconds(), DurationSeconds: o.span.Duration.Seconds(), Operations: o.span.Operations,
	}
}

// judgedTrials is runTrials, after which the objectives are judged.
func judgedTrials(c *cobra.Command, o *trialOptions, open opener, body func(*trials) error, show func(*trials, io.Writer, error) error) error {
	rows, err := runTrials(c, o, open, body, show)
	if err != nil {
		return err
	}
	var cells []*results.Cell
	for _, r := range rows[1:] { // after the load
		params := []results.Param{{Name: "workload", Value: r.Workload}, {Name: "threads", Value: strconv.Itoa(r.Threads)}}
		cells = append(cells, &results.Cell{Params: params, Runs: []*results.Run{{Trial: r.trial}}})
	}
	return o.judge(c, cells)
}

// runTrials opens the target, loads the records, calls body for the trials, audits the
// records and calls show, which shows the results also after an error. It returns the trials
// that ended, of which the load is the first.
func runTrials(c *cobra.Command, o *trialOptions, open opener, body func(*trials) error, show func(*trials, io.Writer, error) error) (rows []trialRow, err error) {
	err = withTarget(c, &o.targetOptions, open, func(target workload.Target, info *targetInfo, report *lineReport) error {
		bench, err := workload.NewBench(target, o.records)
		if err != nil {
			return err
		}
		t := &trials{
			Bench: bench, command: c, options: o, target: target, info: info, report: report,
			live:     newLiveView(c.ErrOrStderr()),
			settings: o.settings(),
		}
		err = t.load()
		if err == nil {
			err = body(t)
		}
		if err == nil && c.Context().Err() == nil {
			err = t.Audit(c.Context(), loadWorkers, loadgen.Counted("audit", "records", t.live.progress))
		}
		t.live.end()
		info.observe(target)
		if rows = t.rows; len(rows) == 0 {
			return err
		}
		return errors.Join(err, show(t, c.OutOrStdout(), err))
	})
	return rows, err
}

func (t *trials) load() error {
	label := trialLabel{Benchmark: t.command.Name(), Workload: "load", Threads: loadWorkers}
	observer, done := t.observer(label), uint64(0)
	observer.Second = func(s loadgen.Sample) {
		done += s.Counts.Ops()
		t.live.progress(loadgen.Progress{What: "load", Things: "records", Done: done, Total: t.options.records.Count, Elapsed: time.Duration(s.NanoTime)})
	}
	trial, err := t.Load(t.command.Context(), loadWorkers, t.options.span.Interval, observer)
	return t.ended(label, trial, err)
}

// observer shows and reports a trial as it goes on.
func (t *trials) observer(label trialLabel) loadgen.Observer {
	return loadgen.Observer{
		Measured: func(begins bool) { measured(t.target, begins) },
		WarmUp:   t.live.progress,
		Second:   func(s loadgen.Sample) { t.live.sample(label, s) },
		Interval: func(s loadgen.Sample) error { return t.report.sample(label, s) },
	}
}

// ended reports a trial and keeps it for the table. It returns the trial's error.
func (t *trials) ended(label trialLabel, trial *loadgen.Trial, err error) error {
	t.live.end()
	if trial == nil {
		return err
	}
	t.rows = append(t.rows, trialRow{label, trial})
	t.info.observe(t.target)
	return errors.Join(err, t.report.summary(trialSummary{label, t.settings, t.info, loadgen.ReadEnvironment(t.options.data), trial}))
}

// collected measures a trial, and adds it to a cell as a run with its series.
func (t *trials) collected(label trialLabel, operations []string, cell *results.Cell, measure func(loadgen.Observer) (*loadgen.Trial, error)) error {
	observer, collector := t.observer(label), results.NewCollector(operations)
	collector.State = stateOf(t.target)
	second := observer.Second
	observer.Second = func(s loadgen.Sample) { second(s); collector.Second(s) }
	trial, err := measure(observer)
	err = t.ended(label, trial, err)
	if trial != nil {
		cell.Workload, cell.Target = t.settings, t.info
		run := collector.Run(trial, t.info.Activity)
		run.Stages = stagesOf(t.target)
		cell.Runs = append(cell.Runs, run)
	}
	return err
}

// endedAll is ended of the trials of a comparison, which are told apart by name.
func (t *trials) endedAll(label trialLabel, all []loadgen.NamedTrial) error {
	var errs []error
	for _, n := range all {
		label.Workload = n.Name
		errs = append(errs, t.ended(label, n.Trial, nil))
	}
	return errors.Join(errs...)
}

// over reports whether the command was ended, for example by a signal.
func (t *trials) over() bool { return t.command.Context().Err() != nil }
