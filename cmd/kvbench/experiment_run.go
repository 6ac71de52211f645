package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/workload"
)

// experimentRun measures what is missing in the result of an experiment, and writes its report.
// Also with an error the result has what was measured.
type experimentRun func(*cobra.Command, *experiment.Experiment, *results.Result, opener) error

// action returns what the command of an experiment does: build returns the experiment that the
// flags ask for, or what is wrong with them.
func (o *experimentOptions) action(build func(*cobra.Command) (*experiment.Experiment, error), run experimentRun, open opener) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		e, err := build(c)
		if err != nil {
			return err
		}
		o.report = reportDirectory(c, o.report, o.resume, holdsReport)
		held, err := results.Prepare(o.report)
		if err != nil {
			return failed(err)
		}
		result, err := o.begin(c, e)
		if err == nil {
			err = run(c, e, result, open)
		}
		if err = errors.Join(err, held.Close()); err == nil {
			err = o.judge(c, e.Judged(result))
		}
		return failed(err)
	}
}

// begin returns the result of an experiment before it is measured: without runs, or with those
// of the one that is resumed.
func (o *experimentOptions) begin(c *cobra.Command, e *experiment.Experiment) (*results.Result, error) {
	environment, err := readEnvironment(".")
	if err != nil {
		return nil, err
	}
	planned := e.Plan(experiment.Options{
		Runs: o.runs, Scale: o.scale, Command: os.Args, Options: optionsOf(c), Objectives: o.slo, Environment: environment,
	})
	return resumed(c, o.resume, o.report, planned)
}

// run does an experiment, each run on a new store, prints its tables and writes its report.
// What was measured is written also after an error.
func (o *experimentOptions) run(c *cobra.Command, e *experiment.Experiment, result *results.Result, open opener) error {
	return o.runOn(c, e, result, newLiveView(c.ErrOrStderr()), func(s experiment.Setup) (experiment.Store, error) { return openForExperiment(o, s, open) })
}

// runOn is run on the stores that open makes.
func (o *experimentOptions) runOn(c *cobra.Command, e *experiment.Experiment, result *results.Result, live *liveView, open func(experiment.Setup) (experiment.Store, error)) error {
	_, err := e.Run(c.Context(), experiment.Options{
		Runs: o.runs, Resumed: result, Open: open, Progress: live.experiment, Save: newSaver(c, o.report, e.Report),
	})
	live.end()
	if !anyRun(result) {
		return err
	}
	if c.Context().Err() != nil && errors.Is(err, c.Context().Err()) {
		err = nil // ended by a signal: report what was measured
	}
	page := e.Report(result)
	return errors.Join(err, experiment.WriteTables(c.OutOrStdout(), page), printLead(c, page), writeReport(c, o.report, result, page))
}

func anyRun(r *results.Result) bool { return r != nil && r.Measured() > 0 }

func printLead(c *cobra.Command, page *report.Page) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", page.Lead)
	return err
}

func openForExperiment(o *experimentOptions, s experiment.Setup, open opener) (experiment.Store, error) {
	dir, err := stores.make()
	if err != nil {
		return experiment.Store{}, err
	}
	store, err := openStore(o, s, dir, open)
	if err != nil {
		return experiment.Store{}, errors.Join(err, stores.remove(dir))
	}
	closeStore := store.Close
	store.Close = func() error { return errors.Join(closeStore(), stores.remove(dir)) }
	return store, nil
}

// openStore opens the store of a directory.
func openStore(o *experimentOptions, s experiment.Setup, dir string, open opener) (experiment.Store, error) {
	options := &targetOptions{
		data: dir, durability: o.durability, level: o.level,
		partitions: s.Partitions, flushKeys: s.FlushKeys, memory: byteSize(s.MemoryBytes), cacheBytes: s.CacheBytes,
		reads: &s.Reads, readLatency: s.ReadLatency, readDepth: s.ReadDepth, server: s.Server,
	}
	if s.CountReads {
		options.fileReads = new(vfs.ReadCounts)
	}
	target, info, err := open(options)
	if err != nil {
		return experiment.Store{}, err
	}
	store := storeOf(target, &info, dir)
	if t, ok := target.(settler); ok {
		store.Settle = t.settle
	}
	if reads := options.fileReads; reads != nil {
		store.FileReads = func() (calls, bytes uint64) { return reads.Calls(), reads.Bytes() }
	}
	return store, nil
}

// storeOf returns the store of a directory that is open.
func storeOf(target workload.Target, info *targetInfo, dir string) experiment.Store {
	return experiment.Store{
		Target: target, Dir: dir, Info: info,
		Activity: func() any { info.observe(target); return info.Activity },
		Measured: func(begins bool) { measured(target, begins) },
		Stages:   func() []results.Stages { return stagesOf(target) },
		State:    stateOf(target),
		Close:    func() error { return closeTarget(target) },
	}
}

// settler is a target that can end the work that it does after many writes.
type settler interface {
	settle(ctx context.Context) error
}

// experiment shows where an experiment is.
func (v *liveView) experiment(p experiment.Progress) {
	where := fmt.Sprintf("run %d of %d  %s", p.Run, p.Runs, p.Cell.Name())
	if p.Sample == nil {
		v.rates = nil
		if p.Doing != nil {
			if !v.due(p.Doing) {
				return
			}
			where += "  " + progressText(p.Doing)
		}
		if p.Left > 0 {
			where += "  about " + p.Left.Round(time.Second).String() + " left in all"
		}
		v.show(where)
		return
	}
	v.showRate(strings.Join([]string{where, strconv.FormatFloat(float64(p.Sample.NanoTime)/1e9, 'f', 0, 64) + "s", rateAndTails(p.Sample)}, "  "), p.Sample.OpsPerSecond)
}
