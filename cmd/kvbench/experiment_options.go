package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// experimentOptions are the flags of every experiment.
type experimentOptions struct {
	dataOptions
	objectiveOptions
	full experimentDefaults

	scale      float64
	duration   time.Duration
	runs       int
	report     string
	durability string
	memory     byteSize
	seed       uint64
	resume     bool

	level kv.Durability // durability, parsed
}

// experimentDefaults are the settings of an experiment at full scale.
type experimentDefaults struct {
	runs       int
	duration   time.Duration // of a run; 0: the experiment has no flag for it
	memory     byteSize      // of a store
	keyBytes   int           // 0: workload.KeyBytes
	valueBytes int
	// distribution of keys; "": the experiment has no flag for it
	distribution workload.Distribution
	// operations that it measures; nil: those of a mix
	operations []string
}

func (o *experimentOptions) register(c *cobra.Command, full experimentDefaults) {
	o.full, o.memory = full, full.memory
	f := c.Flags()
	f.Float64Var(&o.scale, "scale", 1, "factor for times and sizes: 1 is the published experiment, 0.01 a hundredth of it")
	if full.duration > 0 {
		f.DurationVar(&o.duration, "duration", 0, fmt.Sprintf("of each run; 0 is that of the experiment, %v, times --scale", full.duration))
	}
	f.IntVar(&o.runs, "runs", full.runs, "runs of each combination")
	f.StringVar(&o.report, "report", "kvbench-"+c.Name(), reportUsage)
	f.StringVar(&o.durability, "durability", kv.DurabilityBuffered.String(), "of writes: memory, buffered or sync")
	o.dataOptions.register(c, full.distribution, cmp.Or(full.keyBytes, workload.KeyBytes), *workload.Fixed(full.valueBytes))
	o.objectiveOptions.register(c, o.operations()[len(o.operations())-1])
	memory := "memory of a store, before --scale"
	if full.memory == 0 {
		memory += "; 0 means the engine's default"
	}
	f.Var(&o.memory, "memory", memory)
	f.Uint64Var(&o.seed, "seed", 1, "equal seeds draw equal operations")
	f.BoolVar(&o.resume, "resume", false, resumeUsage)
}

// operations returns those that the experiment measures.
func (o *experimentOptions) operations() []string {
	if o.full.operations == nil {
		return workload.Operations()
	}
	return o.full.operations
}

func (o *experimentOptions) check() (err error) {
	switch {
	case !(o.scale > 0 && o.scale <= 100): // NaN is neither
		return errScale(o.scale)
	case o.duration < 0:
		return fmt.Errorf("--duration %v: want 0 or more", o.duration)
	case o.memory == 0 && o.full.memory > 0:
		return errors.New("--memory 0: want the memory of a store, such as 1GiB")
	case o.report == "":
		return errors.New("--report needs the name of a directory")
	}
	o.level, err = parseLevel(o.durability)
	return errors.Join(err, checkRepeats("runs", o.runs), o.parse(o.operations()))
}

func errScale(scale float64) error {
	return fmt.Errorf("--scale %v: want more than 0, and at most 100", scale)
}

// mostRepeats bounds how often a measurement is repeated.
const mostRepeats = 10_000

// checkRepeats checks a flag that says how often something is measured.
func checkRepeats(flag string, n int) error {
	if n < 1 || n > mostRepeats {
		return fmt.Errorf("--%s %d: want 1 to %d", flag, n, mostRepeats)
	}
	return nil
}

// checkPartitions checks the number of partitions of a new store.
func checkPartitions(n int) error {
	if n < 1 || n > descriptor.MaxPartitions {
		return fmt.Errorf("--partitions %d: want 1 to %d", n, descriptor.MaxPartitions)
	}
	return nil
}

// checkCount checks a flag for a number of keys, rows or operations, which --scale multiplies.
func checkCount(flag string, n uint64) error {
	if n < 1 || n > workload.MaxKeys {
		return fmt.Errorf("--%s %d: want 1 to %d", flag, n, uint64(workload.MaxKeys))
	}
	return nil
}

// checkDistinct checks a list of which each value is measured.
func checkDistinct[T comparable](flag string, values []T) error {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("--%s: %v is there twice; name each value once", flag, v)
		}
	}
	return nil
}

// Lower bounds of what --scale makes of sizes: below them nothing is flushed.
const (
	leastScaledKeys   = 10_000
	leastScaledMemory = 64 << 20
)

// What --scale leaves of the length of a run at least: two seconds, and a second where no
// steady state of flushes and compactions is needed.
const (
	leastDuration      = 2 * time.Second
	leastShortDuration = time.Second
)

// scaledDuration returns the length of a run: that of --duration, or whole tenths of a second,
// and not less than least.
func (o *experimentOptions) scaledDuration(least time.Duration) time.Duration {
	if o.duration > 0 {
		return o.duration
	}
	return max(time.Duration(o.scale*float64(o.full.duration)).Round(100*time.Millisecond), least)
}

// scaledKeys returns a number of keys.
func (o *experimentOptions) scaledKeys(full uint64) uint64 {
	return uint64(max(o.scale*float64(full), leastScaledKeys))
}

// scaledMemory returns the memory of a store.
func (o *experimentOptions) scaledMemory() int64 {
	return int64(max(o.scale*float64(o.memory), leastScaledMemory))
}

// config returns the settings that the cells of an experiment share. keys is the size of
// the key space at full scale.
func (o *experimentOptions) config(keys uint64) (workload.Config, error) {
	config := workload.Config{
		Keys: o.scaledKeys(keys), Distribution: workload.Uniform,
		Seed: o.seed, Duration: o.scaledDuration(leastDuration), Interval: time.Second,
	}
	return config, o.apply(&config)
}

// validate returns the first thing that is wrong with the cells of an experiment.
func validate(e *experiment.Experiment) error {
	for i := range e.Cells {
		same := func(c experiment.Cell) bool { return slices.Equal(c.Params, e.Cells[i].Params) }
		if slices.ContainsFunc(e.Cells[:i], same) {
			cell := results.Cell{Params: e.Cells[i].Params}
			return fmt.Errorf("%q would be measured twice as often as others: name each value of a flag once, and such that --scale leaves them apart", cell.Name())
		}
		if err := e.Cells[i].Config.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// mixOptions are the flags of the experiments with the four mixes.
type mixOptions struct {
	mixes   []string
	threads []int
}

func (o *mixOptions) register(c *cobra.Command, threads []int) {
	var all []string
	for _, m := range workload.Mixes {
		all = append(all, m.Name)
	}
	f := c.Flags()
	f.StringSliceVar(&o.mixes, "mixes", all, "mixes of operations; kvbench run --help has their shares; also READ_ONLY and WRITE_ONLY")
	f.IntSliceVar(&o.threads, "threads", threads, "numbers of threads, each with one operation at a time")
}

// parse returns the mixes that the flags name.
func (o *mixOptions) parse() ([]workload.Mix, error) {
	var mixes []workload.Mix
	for _, name := range o.mixes {
		mix, err := workload.ParseMix(name)
		if err != nil {
			return nil, err
		}
		mixes = append(mixes, mix)
	}
	return mixes, nil
}
