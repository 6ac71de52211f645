package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// coreOptions is the command line of ycsb.
type coreOptions struct {
	trialOptions
	names  []string
	cores  []workload.Core
	caches []string
	sizes  []byteSize // of caches; 0: the default, or what --memory says
	scale  float64
	runs   int
	report string
	resume bool
}

func newCoreCommand(open opener) *cobra.Command {
	var o coreOptions
	c := &cobra.Command{
		Use:   "ycsb",
		Short: "Run the core workloads of YCSB",
		Long: `Run the core workloads of YCSB (Cooper et al., SoCC 2010).

  A  50 % reads, 50 % updates                 zipfian
  B  95 % reads, 5 % updates                  zipfian
  C  reads                                    zipfian
  D  95 % reads, 5 % insertions               latest
  E  95 % scans of 1 to 100, 5 % insertions   zipfian
  F  50 % reads, 50 % read-modify-writes      zipfian

The records are loaded once; then each workload runs with each number of threads. A new
store in this process is made for each size of the block cache, small and large, as in the
article on CruzDB, and for each run. A record is one value, so an update replaces all of it.
A read-modify-write is a transaction, which is repeated until it does not conflict.

Every answer is checked, including the order and completeness of scans, and at the
end all records are read: a lost update ends the run with exit code 1.

With --scale 0.02 each trial takes 0.6 seconds, on a fiftieth of the records and with
smaller caches, with the same code; the report names the scale.`,
		Example: `  kvbench ycsb --scale 0.02 --report ycsb
  kvbench ycsb --records 1000000 --operations 1000000 --threads 1,2,4,8,16
  kvbench ycsb --workload A,F --duration 30s --durability sync --addr localhost:7070 --admin localhost:7071`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&o.names, "workload", []string{"A", "B", "C", "F", "D", "E"}, "workloads to run, in this order")
	f.Uint64Var(&o.span.Operations, "operations", 0, "end each trial after this many operations instead of --duration")
	f.Float64Var(&o.records.Theta, "theta", workload.DefaultTheta, "skew of the Zipfian distributions")
	f.StringSliceVar(&o.caches, "caches", []string{"4MiB", "8GiB"}, "embedded: sizes of the block cache, before --scale; a new store has one after the other, unless --memory is given")
	f.Float64Var(&o.scale, "scale", 1, "records, duration, caches and memtables relative to the published experiment; --duration and --operations stay as they are given")
	f.IntVar(&o.runs, "runs", 1, "repeat everything, each time on new stores; the report has the spread")
	f.StringVar(&o.report, "report", "kvbench-ycsb", reportUsage)
	f.BoolVar(&o.resume, "resume", false, resumeUsage+"; a new store then has the loaded records, and not what the complete trials wrote")
	o.objectiveOptions.register(c, "read")
	o.trialOptions.register(c, "records", 500_000, []int{1, 2, 4, 16}, coreDuration)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		result, err := o.measure(c, open)
		if err == nil {
			err = o.judge(c, result.Cells)
		}
		return failed(err)
	}
	return c
}

func (o *coreOptions) resolve(c *cobra.Command) error {
	if o.span.Operations > 0 && !c.Flags().Changed("duration") {
		o.span.Duration = 0
	}
	var errs []error
	var names []string
	for _, name := range o.names {
		core, err := workload.ParseCore(name)
		o.cores, names = append(o.cores, core), append(names, core.Name)
		errs = append(errs, err)
	}
	if len(o.names) == 0 {
		return errors.New("--workload: want at least one")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	errs = append(errs, checkDistinct("workload", names))
	switch {
	case o.records.Theta == 0:
		errs = append(errs, errNoTheta)
	case o.records.Count == 0:
		errs = append(errs, errors.New("--records 0: want at least 1")) // before --scale, which leaves at least 1
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := o.trialOptions.resolve(c, workload.CoreOperations()); err != nil {
		return err
	}
	return o.resolveStores(c)
}

// coreDuration is the length of a trial at full scale, and leastCoreDuration one that
// --scale does not shorten.
const (
	coreDuration      = 30 * time.Second
	leastCoreDuration = 500 * time.Millisecond
)

// resolveStores finds out which stores to make, and scales them.
func (o *coreOptions) resolveStores(c *cobra.Command) error {
	const leastMemtables = 1 << 20
	given := c.Flags().Changed
	switch {
	case !(o.scale > 0 && o.scale <= 100): // NaN is neither
		return errScale(o.scale)
	case o.report == "":
		return errors.New("--report needs the name of a directory")
	case o.resume && o.refuseResume() != nil:
		return o.refuseResume()
	case o.runs > 1 && (o.data != "" || o.addr != ""):
		return errors.New("--runs needs a new store for each run: leave out --data and --addr")
	case given("caches") && (o.data != "" || o.addr != "" || o.memory > 0):
		return errors.New("--caches needs a new store for each size: leave out --data, --addr and --memory")
	}
	if err := checkRepeats("runs", o.runs); err != nil {
		return err
	}
	o.records.Count = max(uint64(o.scale*float64(o.records.Count)), 1)
	if o.span.Duration > 0 && !given("duration") {
		o.span.Duration = max(time.Duration(o.scale*float64(o.span.Duration)), leastCoreDuration)
	}
	if o.data != "" || o.addr != "" || o.memory > 0 {
		o.sizes = []byteSize{0}
		return nil
	}
	o.memtableBytes = int64(max(o.scale*coreMemtables, leastMemtables))
	for _, text := range o.caches {
		var size byteSize
		if err := size.Set(text); err != nil || size == 0 {
			return fmt.Errorf("--caches %q: want sizes such as 4MiB", text)
		}
		o.sizes = append(o.sizes, size)
	}
	if len(o.sizes) == 0 {
		return errors.New("--caches: want at least one size")
	}
	slices.Sort(o.sizes) // the report relates the last to the first
	names := make([]string, len(o.sizes))
	for i := range o.sizes {
		names[i] = o.sizes[i].String()
	}
	return checkDistinct("caches", names)
}

// coreMemtables is the memory of memtables at full scale: the engine's default.
const coreMemtables = 128 << 20

// measure runs all workloads on all stores, and writes the report. What was measured is
// written also after an error.
func (o *coreOptions) measure(c *cobra.Command, open opener) (result *results.Result, err error) {
	o.report = reportDirectory(c, o.report, o.resume, holdsReport)
	held, err := results.Prepare(o.report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	environment, err := readEnvironment(".")
	if err != nil {
		return nil, err
	}
	result = &results.Result{
		Version: results.Version, Experiment: c.Name(), Command: os.Args, Scale: o.scale,
		Began: time.Now().UTC().Format(time.RFC3339), Options: optionsOf(c), Objectives: o.slo, Environment: environment,
	}
	for _, core := range o.cores {
		for _, size := range o.sizes {
			for _, threads := range o.threads {
				result.Cells = append(result.Cells, &results.Cell{Params: experiment.CoreParams(core.Name, o.cacheName(size), threads)})
			}
		}
	}
	result.Planned = o.runs * len(result.Cells)
	if result, err = resumed(c, o.resume, o.report, result); err != nil {
		return nil, err
	}
	save := newSaver(c, o.report, experiment.YCSB().Report)
	for run := 0; run < o.runs && err == nil && c.Context().Err() == nil; run++ {
		sizes := slices.Clone(o.sizes)
		if run%2 == 1 { // so that a machine that becomes slower favours none
			slices.Reverse(sizes)
		}
		for i := 0; i < len(sizes) && err == nil && c.Context().Err() == nil; i++ {
			if !o.missing(result, o.cacheName(sizes[i]), run) {
				continue
			}
			once := o.trialOptions // a new store each time
			once.records.Seed += uint64(run)
			once.cacheBytes = max(int64(o.scale*float64(sizes[i])), min(int64(sizes[i]), 1))
			_, err = runTrials(c, &once, open, func(t *trials) error { return o.run(t, result, o.cacheName(sizes[i]), run, save) }, printCores)
			if errors.Is(err, workload.ErrWrongAnswer) {
				o.blame(result, o.cacheName(sizes[i]), run, err)
			}
		}
	}
	if !anyRun(result) {
		return result, err
	}
	page := experiment.YCSB().Report(result)
	return result, errors.Join(err, experiment.WriteTables(c.OutOrStdout(), page), printLead(c, page), writeReport(c, o.report, result, page))
}

// cacheName names a size of the cache in the report; "" if it was not chosen.
func (o *coreOptions) cacheName(size byteSize) string {
	if size == 0 {
		return ""
	}
	return size.String()
}

// blame marks the runs on a store that gave a wrong answer, perhaps only to the audit after them.
func (o *coreOptions) blame(result *results.Result, cache string, run int, err error) {
	for _, core := range o.cores {
		for _, threads := range o.threads {
			if runs := result.Cell(experiment.CoreParams(core.Name, cache, threads)).Runs; len(runs) > run && runs[run].Error == "" {
				runs[run].Error = err.Error()
			}
		}
	}
}

// missing reports whether a run was not measured before with all workloads and threads.
func (o *coreOptions) missing(result *results.Result, cache string, run int) bool {
	for _, core := range o.cores {
		for _, threads := range o.threads {
			if len(result.Cell(experiment.CoreParams(core.Name, cache, threads)).Runs) <= run {
				return true
			}
		}
	}
	return false
}

// run measures all workloads of a run on one store, and calls save before each but the first one.
func (o *coreOptions) run(t *trials, result *results.Result, cache string, number int, save func(*results.Result)) error {
	for _, core := range o.cores {
		for _, threads := range o.threads {
			if len(result.Cell(experiment.CoreParams(core.Name, cache, threads)).Runs) > number {
				continue // before the experiment was resumed
			}
			if anyRun(result) {
				save(result)
			}
			label := trialLabel{Benchmark: "ycsb", Workload: core.Name, Threads: threads}
			cell := result.Cell(experiment.CoreParams(core.Name, cache, threads))
			err := t.collected(label, workload.CoreOperations(), cell, func(observer loadgen.Observer) (*loadgen.Trial, error) {
				return t.RunCore(t.command.Context(), core, o.with(threads), observer)
			})
			if err != nil || t.over() {
				return err
			}
		}
	}
	return nil
}

func printCores(t *trials, out io.Writer, err error) error {
	return printTrials(t, out, err, fmt.Sprintf("%s records of %s bytes", grouped(float64(t.options.records.Count)),
		grouped(float64(t.options.records.ValueBytes))))
}
