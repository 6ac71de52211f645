package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

func newRunCommand(open opener) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run",
		Short: "Run one workload and report throughput, latency and found rate",
		Long: `Run one workload and report throughput, latency and found rate.

` + mixTable() + `
Without --data or --addr the engine runs in this process on a new directory
below the current one, which is removed afterwards. Every answer is checked: a
wrong value or a lost key ends the run with exit code 1. A get finds something only after
puts of the same run, or with --preload.

With --rate operations begin by the clock, whether or not earlier ones have ended (an
open loop), and their latency counts from when they were due: a store that stalls cannot
hide it. With --slo the exit code is 2 if a latency of any run is too long.

With --report a directory gets the figures as JSON, CSV and text for benchstat, and
report.html, a self-contained page with charts. Of a server it has the processor time and
the work of its store if --admin names its admin address.`,
		Example: `  kvbench run --mix GET_HEAVY --preload 1000000 --keys 1000000 --duration 30s
  kvbench run --addr localhost:7070 --admin localhost:7071 --durability sync --threads 64
  kvbench run --mix BALANCED --runs 3 --report balanced
  kvbench run --rate 20000 --arrivals poisson --warmup 5s --slo 'p99<5ms,get.p99.9<20ms'`,
		Args: cobra.NoArgs,
	}
	o.register(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		return failed(benchmark(c, &o, open))
	}
	return c
}

// mixTable lists the mixes with the shares of their operations.
func mixTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %-13s %5s %8s %5s\n", "mix", "puts", "deletes", "gets")
	for _, m := range slices.Concat(workload.Mixes, workload.PureMixes) {
		fmt.Fprintf(&b, "  %-13s %3d %% %6d %% %3d %%\n", m.Name, m.Put, m.Delete, m.Get)
	}
	return b.String()
}

// benchmark does the runs, prints each, and writes the report, also after an error.
func benchmark(c *cobra.Command, o *options, open opener) error {
	result := &results.Result{
		Version: results.Version, Experiment: c.Name(), Command: os.Args, Scale: 1,
		Began: time.Now().UTC().Format(time.RFC3339), Options: optionsOf(c), Planned: o.runs, Objectives: o.slo,
		Cells: []*results.Cell{{Params: o.params()}},
	}
	result, err := o.measureAndReport(c, result, open)
	if err != nil {
		return err
	}
	return o.judge(c, result.Cells)
}

// measureAndReport does the runs that are missing, and writes the report if one was asked for.
func (o *options) measureAndReport(c *cobra.Command, result *results.Result, open opener) (*results.Result, error) {
	if o.report == "" {
		return result, o.measure(c, result, open, func(*results.Result) {})
	}
	held, err := results.Prepare(o.report)
	if err != nil {
		return nil, err
	}
	if result, err = o.resumed(c, result); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	err = o.measure(c, result, open, newSaver(c, o.report, runPage))
	if anyRun(result) {
		err = errors.Join(err, writeReport(c, o.report, result, runPage(result)))
	}
	return result, errors.Join(err, held.Close())
}

// resumed returns the result of the report if it is to be resumed, and otherwise what is planned.
func (o *options) resumed(c *cobra.Command, planned *results.Result) (_ *results.Result, err error) {
	if o.resume {
		if planned.Environment, err = readEnvironment("."); err != nil {
			return nil, err
		}
	}
	return resumed(c, o.resume, o.report, planned)
}

// measure does the runs that are missing.
func (o *options) measure(c *cobra.Command, result *results.Result, open opener, save func(*results.Result)) error {
	cell := result.Cells[0]
	for n := range o.runs {
		if n > 0 {
			o.config.Seed++ // so that runs draw other operations
		}
		if n < len(cell.Runs) {
			continue // before it was resumed
		}
		if n > 0 {
			save(result)
		}
		target := o.targetOptions // each run without --data has a directory of its own
		summary, info, err := runOnce(c, o, &target, open, cell)
		if summary != nil {
			result.Environment = summary.Environment
			cell.Workload, cell.Target = summary.Workload, info
		}
		if err != nil || c.Context().Err() != nil {
			return err
		}
	}
	return nil
}

// runPage returns the page of one workload.
func runPage(r *results.Result) *report.Page {
	page := &report.Page{Title: "One workload", Result: r, Sections: report.Cells(r)}
	for _, c := range r.Cells {
		least, median, most := c.Rates()
		page.Lead = fmt.Sprintf("%s: %s operations/s.", c.Name(), grouped(median))
		if len(c.Runs) > 1 {
			page.Lead = fmt.Sprintf("%s: %s operations/s, %s to %s in %d runs.", c.Name(), grouped(median), grouped(least), grouped(most), len(c.Runs))
		}
		if text := report.Unanswered(c); text != "" {
			page.Lead = strings.TrimSuffix(page.Lead, ".") + "; " + text + "."
		}
	}
	return page
}

// runOnce does one run, prints it, and adds it to the cell.
func runOnce(c *cobra.Command, o *options, on *targetOptions, open opener, cell *results.Cell) (summary *workload.Summary, info *targetInfo, err error) {
	err = withTarget(c, on, open, func(target workload.Target, about *targetInfo, lines *lineReport) error {
		info = about
		live := newLiveView(c.ErrOrStderr())
		collector := results.NewCollector(workload.Operations())
		collector.State = stateOf(target)
		var err error
		summary, err = workload.Run(c.Context(), target, o.config, workload.Observer{
			Preload:  loadgen.Counted("preload", "keys", live.progress),
			WarmUp:   live.progress,
			Second:   func(s loadgen.Sample) { live.second(s); collector.Second(s) },
			Interval: lines.line,
			Measured: func(begins bool) { measured(target, begins) },
		})
		live.end()
		info.observe(target)
		if summary != nil {
			summary.Target = info
			var unknown error
			if summary.Environment = loadgen.ReadEnvironment(on.data); o.report != "" {
				summary.Environment, unknown = readEnvironment(on.data)
			}
			err = errors.Join(err, unknown)
			run := collector.Run(summary.Trial, info.Activity)
			run.Stages = stagesOf(target)
			cell.Runs = append(cell.Runs, run)
			err = errors.Join(err, lines.summary(summary), printSummary(c.OutOrStdout(), summary, info), nothingDone(summary))
		}
		return err
	})
	return summary, info, err
}

// nothingDone returns an error if a run that ended as it should did not do any operation.
func nothingDone(s *workload.Summary) error {
	if s.Ops > 0 || s.Interrupted || s.Error != "" {
		return nil
	}
	return fmt.Errorf("no operation was done: the store refused %s, and %s had not begun at the end", grouped(float64(s.Refused)), grouped(float64(s.Trial.Due()-s.Refused)))
}

// params returns the settings that identify the runs of this command in a report.
func (o *options) params() []results.Param {
	params := []results.Param{
		{Name: "mix", Value: o.config.Mix.Name},
		{Name: "threads", Value: strconv.Itoa(o.config.Workers)},
		{Name: "durability", Value: o.durability},
	}
	if o.addr == "" {
		return append(params, results.Param{Name: "partitions", Value: strconv.Itoa(o.partitions)})
	}
	return append(params, results.Param{Name: "server", Value: o.addr})
}

// writeReport writes the directory of a report, and prints the path of its page.
func writeReport(c *cobra.Command, dir string, r *results.Result, page *report.Page) error {
	ofSource(c, r, page)
	if err := results.Write(dir, r, page.Files()); err != nil {
		return err
	}
	return printReportPath(c, dir)
}

func printReportPath(c *cobra.Command, dir string) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), "report       %s\n", filepath.Join(dir, results.ReportFile))
	return err
}
