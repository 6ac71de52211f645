package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// sweepOptions is the command line of sweep.
type sweepOptions struct {
	options
	rates string
	sweep experiment.Sweep
}

func newSweepCommand(open opener) *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Offer more and more operations a second, and draw latency by load with its knee",
		Long: `Offer more and more operations a second, and draw latency by load with its knee.

Each load is an open loop: operations begin by the clock, and their latency counts from
when they were due. With --rps auto a closed loop shows what the store can do; then the
load grows by tenths of that until two loads were too much, and two loads are inserted
below the first of these.

The knee is the highest load that was not too much. A load is too much if, in any of its runs,
less than 98 % of what was due was done, or the p99 is over ten times the shortest p99 of all
loads; with --slo, if a run misses an objective. With --slo the exit code is 2 if every load was too much: loads
above the knee are meant to miss objectives. All loads run on one store, which is preloaded
with all keys.`,
		Example: `  kvbench sweep --rps auto --mix GET_HEAVY --report sweep
  kvbench sweep --rps 1000,5000,10000,20000 --addr localhost:7070 --admin localhost:7071 --durability sync
  kvbench sweep --slo 'p99<2ms' --runs 3`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&o.rates, "rps", "auto", "operations a second to offer, in ascending order: auto, or a list; also --rate")
	f.StringVar(&o.rates, "rate", "auto", "another name of --rps")
	f.Lookup("rate").Hidden = true
	f.StringVar(&o.mix, "mix", "GET_HEAVY", "operations: PUT_HEAVY, GET_HEAVY, DELETE_HEAVY, BALANCED, READ_ONLY or WRITE_ONLY")
	f.IntVar(&o.config.Workers, "threads", 64, "most operations at a time")
	f.Uint64Var(&o.config.Keys, "keys", 100_000, "size of the key space; all are put before the measurement")
	f.Float64Var(&o.config.FindRate, "find-rate", 0.9, "share of gets and deletes that ask for a key known to be there")
	f.Uint64Var(&o.config.Seed, "seed", 1, "equal seeds draw equal operations; each further run has the next seed")
	f.StringVar(&o.arrivals, "arrivals", fixedArrivals, "of operations: fixed (evenly spaced) or poisson (at random times)")
	f.StringVar(&o.slo, "slo", "", "objectives, such as p99<5ms,get.p99.9<20ms: the knee is the highest load that meets them; if none does, the exit code is 2")
	f.BoolVar(&o.verify, "verify", true, "check every value that is read")
	f.DurationVar(&o.config.Warmup, "warmup", time.Second, "run each load this long before its measurement")
	f.DurationVar(&o.config.Duration, "duration", 5*time.Second, "of the measurement of each load")
	f.IntVar(&o.runs, "runs", 1, "runs of each load")
	f.StringVar(&o.report, "report", "kvbench-sweep", reportUsage)
	f.BoolVar(&o.resume, "resume", false, resumeUsage+"; the new store has all keys, and not what the complete runs wrote")
	o.dataOptions.register(c, workload.Uniform, workload.KeyBytes, *workload.Fixed(1024))
	o.targetOptions.register(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		result, err := o.run(c, open)
		if err == nil {
			err = o.judge(c, result)
		}
		return failed(err)
	}
	return c
}

func (o *sweepOptions) resolve(c *cobra.Command) (err error) {
	if o.sweep.Rates, err = experiment.ParseRates(o.rates); err != nil {
		return fmt.Errorf("--rps %w", err)
	}
	if o.report == "" {
		return errors.New("--report needs the name of a directory")
	}
	if err := checkRepeats("runs", o.runs); err != nil {
		return err
	}
	o.config.Interval, o.config.OpsPerSecond, o.loaded = time.Second, 1, true
	runs := o.runs
	o.runs = 1 // as all runs share the store
	defer func() { o.runs = runs }()
	return o.options.resolve(c)
}

// judge returns an error if no load met the objectives.
func (o *sweepOptions) judge(c *cobra.Command, result *results.Result) error {
	if len(o.objectives) == 0 || experiment.HasKnee(result) {
		return nil
	}
	if c.Context().Err() != nil {
		return errNotJudged
	}
	return fmt.Errorf("%w: every load was too much for %s", errMissed, o.slo)
}

func (o *sweepOptions) run(c *cobra.Command, open opener) (result *results.Result, err error) {
	o.report = reportDirectory(c, o.report, o.resume, holdsReport)
	held, err := results.Prepare(o.report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	o.sweep.Runs, o.sweep.Params = o.runs, o.params()
	result, err = o.resumed(c, &results.Result{
		Version: results.Version, Experiment: c.Name(), Command: os.Args, Scale: 1, Objectives: o.slo,
		Began: time.Now().UTC().Format(time.RFC3339), Options: optionsOf(c), Planned: o.runs * len(o.sweep.Rates),
	})
	if err != nil {
		return nil, err
	}
	if !o.sweep.Complete(c.Context(), result) {
		err = o.measure(c, result, open)
	}
	if !anyRun(result) {
		return result, err
	}
	switch {
	case c.Context().Err() != nil:
		err = nil // ended by a signal: report what was measured
		o.incomplete(result)
	case err != nil:
		o.incomplete(result)
	case o.sweep.Rates == nil:
		result.Planned = result.Measured()
	}
	page := experiment.SweepPage(result)
	return result, errors.Join(err, experiment.WriteTables(c.OutOrStdout(), page), printLead(c, page), writeReport(c, o.report, result, page))
}

// incomplete notes that runs are missing. A sweep that searches its loads does not know how many:
// one at least.
func (o *sweepOptions) incomplete(result *results.Result) {
	result.Planned = max(o.runs*len(o.sweep.Rates), result.Measured()+1)
}

// measure offers the loads that are missing, on one store.
func (o *sweepOptions) measure(c *cobra.Command, result *results.Result, open opener) error {
	save := newSaver(c, o.report, experiment.SweepPage)
	return withTarget(c, &o.targetOptions, open, func(target workload.Target, info *targetInfo, lines *lineReport) error {
		var err error
		if result.Environment, err = readEnvironment(o.data); err != nil {
			return err
		}
		m := &sweepMeasurement{o: o, command: c, target: target, info: info, lines: lines, seed: uint64(result.Measured())}
		if o.sweep.Rates == nil && m.seed > 0 {
			m.seed++ // the closed loop came first
		}
		o.sweep.Measure = func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
			if anyRun(result) {
				o.incomplete(result)
				save(result)
			}
			return m.measure(ctx, rate, cell)
		}
		if err := m.preload(); err != nil {
			return err
		}
		return o.sweep.Run(c.Context(), result)
	})
}

// sweepMeasurement measures the loads of one sweep.
type sweepMeasurement struct {
	o       *sweepOptions
	command *cobra.Command
	target  workload.Target
	info    *targetInfo
	lines   *lineReport
	seed    uint64 // of the next run, so that runs draw other operations
}

// preload puts all keys, and runs the load for a moment.
func (m *sweepMeasurement) preload() error {
	config := m.o.config
	config.OpsPerSecond, config.Poisson, config.Warmup, config.Duration = 0, false, 0, time.Second
	config.Preload = config.Keys
	live := newLiveView(m.command.ErrOrStderr())
	defer live.end()
	_, err := workload.Run(m.command.Context(), m.target, config, workload.Observer{Preload: loadgen.Counted("preload", "keys", live.progress)})
	return err
}

// measure offers one load. cell is nil for the closed loop.
func (m *sweepMeasurement) measure(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
	config := m.o.config
	m.seed++
	config.OpsPerSecond, config.Reused, config.Seed = rate, true, config.Seed+m.seed
	where := "closed loop"
	if rate == 0 {
		config.Poisson = false
	} else {
		where = "offered " + strconv.FormatUint(rate, 10) + "/s"
	}
	live := newLiveView(m.command.ErrOrStderr())
	collector := results.NewCollector(workload.Operations())
	collector.State = stateOf(m.target)
	summary, err := workload.Run(ctx, m.target, config, workload.Observer{
		WarmUp: live.progress,
		Second: func(s loadgen.Sample) {
			live.showRate(where+"  "+rateAndTails(&s), s.OpsPerSecond)
			collector.Second(s)
		},
		Interval: m.lines.line,
		Measured: func(begins bool) { measured(m.target, begins) },
	})
	live.end()
	if summary == nil {
		return nil, err
	}
	m.info.observe(m.target)
	if cell != nil {
		cell.Workload, cell.Target = summary.Workload, m.info
	}
	run := collector.Run(summary.Trial, m.info.Activity)
	run.Stages = stagesOf(m.target)
	return run, err
}
