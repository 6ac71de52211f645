package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// partitionsOptions is the command line of partitions.
type partitionsOptions struct {
	experimentOptions
	mixes      []string
	partitions []int
	threads    []int
	keys       uint64
	valueBytes int
	memory     byteSize
	seed       uint64
}

// The full scale of the experiment: the key space and the hour of the article.
const (
	partitionsKeys     = 10_000_000
	partitionsDuration = time.Hour
	partitionsMemory   = 2 << 30
)

func newPartitionsCommand(open opener) *cobra.Command {
	o := partitionsOptions{memory: partitionsMemory}
	c := &cobra.Command{
		Use:   "partitions",
		Short: "Measure mixes by number of partitions and threads, and draw charts",
		Long: `Measure each mix with each number of partitions and threads, and draw charts.

This repeats the experiment of the article on the hash-partitioned tree: an hour for
each combination, on 10,000,000 keys. With --scale 0.001 each takes 3.6 seconds, on a
thousandth of the keys, with the same code; the report names the scale. All stores have
the same memory, whatever their number of partitions. Each run has a new store, which is
removed afterwards.`,
		Example: `  kvbench partitions --scale 0.003 --report partitions
  kvbench partitions --mixes PUT_HEAVY --partitions 16 --threads 32 --scale 0.1 --report collapse`,
		Args: cobra.NoArgs,
	}
	o.register(c)
	f := c.Flags()
	var all []string
	for _, m := range workload.Mixes {
		all = append(all, m.Name)
	}
	f.StringSliceVar(&o.mixes, "mixes", all, "operations")
	f.IntSliceVar(&o.partitions, "partitions", []int{1, 4, 8, 16}, "numbers of partitions")
	f.IntSliceVar(&o.threads, "threads", []int{1, 4, 16, 32}, "numbers of threads, each with one operation at a time")
	f.Uint64Var(&o.keys, "keys", partitionsKeys, "size of the key space, before --scale")
	f.IntVar(&o.valueBytes, "value-size", 1024, "bytes of a value")
	f.Var(&o.memory, "memory", "memory of a store, before --scale")
	f.Uint64Var(&o.seed, "seed", 1, "equal seeds draw equal operations")
	c.RunE = func(c *cobra.Command, _ []string) error {
		e, err := o.experiment()
		if err != nil {
			return err
		}
		return failed(o.run(c, e, open))
	}
	return c
}

// leastScaled bounds what --scale makes of sizes and times: below it nothing is flushed.
const (
	leastScaledKeys   = 10_000
	leastScaledMemory = 64 << 20
)

func (o *partitionsOptions) experiment() (*experiment.Experiment, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := experiment.Partitions{
		Partitions: o.partitions, Threads: o.threads,
		Memory: int64(max(o.scale*float64(o.memory), leastScaledMemory)),
		Config: workload.Config{
			Keys: uint64(max(o.scale*float64(o.keys), leastScaledKeys)), ValueBytes: o.valueBytes, FindRate: 0.5,
			Distribution: workload.Uniform, Seed: o.seed, Interval: time.Second,
			Duration: o.scaled(partitionsDuration),
		},
	}
	for _, name := range o.mixes {
		mix, err := workload.ParseMix(name)
		if err != nil {
			return nil, err
		}
		p.Mixes = append(p.Mixes, mix)
	}
	e := p.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one mix, number of partitions and number of threads")
	}
	for i := range e.Cells {
		if n := e.Cells[i].Setup.Partitions; n < 1 {
			return nil, fmt.Errorf("--partitions %d: want at least 1", n)
		}
		if err := e.Cells[i].Config.Validate(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// experimentOptions are those of every experiment.
type experimentOptions struct {
	scale      float64
	duration   time.Duration
	runs       int
	report     string
	durability string
	level      kv.Durability
}

func (o *experimentOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.Float64Var(&o.scale, "scale", 1, "times and sizes relative to the published experiment")
	f.DurationVar(&o.duration, "duration", 0, "of each run; 0 is that of the experiment, times --scale")
	f.IntVar(&o.runs, "runs", 3, "runs of each combination")
	f.StringVar(&o.report, "report", "kvbench-"+c.Name(), "directory for the figures and the page, report.html")
	f.StringVar(&o.durability, "durability", kv.DurabilityBuffered.String(), "of writes: memory, buffered or sync")
}

func (o *experimentOptions) check() (err error) {
	switch {
	case o.scale <= 0 || o.scale > 100:
		return fmt.Errorf("--scale %v: want more than 0, and at most 100", o.scale)
	case o.runs < 1:
		return fmt.Errorf("--runs %d: want at least 1", o.runs)
	case o.duration < 0:
		return fmt.Errorf("--duration %v: want 0 or more", o.duration)
	case o.report == "":
		return errors.New("--report needs the name of a directory")
	}
	o.level, err = parseLevel(o.durability)
	return err
}

// scaled returns the length of a run: whole tenths of a second, at least two seconds.
func (o *experimentOptions) scaled(full time.Duration) time.Duration {
	if o.duration > 0 {
		return o.duration
	}
	return max(time.Duration(o.scale*float64(full)).Round(100*time.Millisecond), 2*time.Second)
}

// run does an experiment, prints its tables and writes its report. What was measured is
// written also after an error.
func (o *experimentOptions) run(c *cobra.Command, e *experiment.Experiment, open opener) error {
	live := newLiveView(c.ErrOrStderr())
	result, err := e.Run(c.Context(), experiment.Options{
		Runs: o.runs, Scale: o.scale, Command: os.Args, Environment: loadgen.ReadEnvironment("."),
		Open:     func(s experiment.Setup) (experiment.Store, error) { return openForExperiment(o, s, open) },
		Progress: live.experiment,
	})
	live.end()
	if !anyRun(result) {
		return err
	}
	page := e.Report(result)
	return errors.Join(err, experiment.WriteTables(c.OutOrStdout(), page), printLead(c, page), writeReport(c, o.report, result, page))
}

func anyRun(r *results.Result) bool {
	for _, c := range r.Cells {
		if len(c.Runs) > 0 {
			return true
		}
	}
	return false
}

func printLead(c *cobra.Command, page *report.Page) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", page.Lead)
	return err
}

func openForExperiment(o *experimentOptions, s experiment.Setup, open opener) (experiment.Store, error) {
	dir, err := os.MkdirTemp(".", "kvbench-data-")
	if err != nil {
		return experiment.Store{}, err
	}
	target, info, err := open(&targetOptions{
		data: dir, durability: o.durability, level: o.level,
		partitions: s.Partitions, flushKeys: s.FlushKeys, memory: byteSize(s.MemoryBytes),
	})
	if err != nil {
		return experiment.Store{}, errors.Join(err, os.RemoveAll(dir))
	}
	return experiment.Store{
		Target: target, Info: &info,
		Activity: func() any { info.observe(target); return info.Activity },
		Close:    func() error { return errors.Join(closeTarget(target), os.RemoveAll(dir)) },
	}, nil
}

// experiment shows where an experiment is.
func (v *liveView) experiment(p experiment.Progress) {
	where := fmt.Sprintf("run %d of %d  %s", p.Run, p.Runs, p.Cell.Name())
	if p.Sample == nil {
		v.rates = nil
		if p.Left > 0 {
			where += "  about " + p.Left.Round(time.Second).String() + " left"
		}
		v.show(where)
		return
	}
	v.showRate(strings.Join([]string{where, strconv.FormatFloat(float64(p.Sample.NanoTime)/1e9, 'f', 0, 64) + "s", rateAndTails(p.Sample)}, "  "), p.Sample.OpsPerSecond)
}
