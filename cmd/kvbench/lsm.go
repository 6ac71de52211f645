package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/workload"
)

// lsmOptions is the command line of lsm.
type lsmOptions struct {
	experimentOptions
	mixOptions
	findRates  []int
	thresholds []uint
	keySpaces  []uint
	partitions int
}

// leastScaledThreshold bounds what --scale makes of a threshold: each flush syncs files.
const leastScaledThreshold = 300

func newLSMCommand(open opener) *cobra.Command {
	var o lsmOptions
	c := &cobra.Command{
		Use:   "lsm",
		Short: "Measure mixes by find rate, size of memtables, keys and threads, and draw charts",
		Long: `Measure mixes by find rate, size of memtables, keys and threads, and draw charts.

This repeats the experiment of the article on the LSM tree: an hour for each of 288
combinations, each on a new store of one partition. The report has the fastest and the
slowest combinations, the effect of each parameter, and the final size against the key
space, beside the figures of the article. The example takes about two minutes.`,
		Example: `  kvbench lsm --scale 0.003 --duration 200ms --report lsm
  kvbench lsm --mixes GET_HEAVY --threads 4 --scale 0.01`,
		Args: cobra.NoArgs,
	}
	full := mixesAtFullScale
	full.runs = 1
	o.experimentOptions.register(c, full)
	o.mixOptions.register(c, []int{1, 4, 16, 64})
	f := c.Flags()
	f.IntSliceVar(&o.findRates, "find-rates", []int{10, 50, 90}, "percent of gets and deletes that ask for a key known to be there")
	f.UintSliceVar(&o.thresholds, "flush-keys", []uint{100_000, 1_000_000}, fmt.Sprintf("entries of a memtable at which it is flushed, before --scale, which leaves at least %d", leastScaledThreshold))
	f.UintSliceVar(&o.keySpaces, "keys", []uint{10_000_000, 100_000_000, 1_000_000_000}, "sizes of the key space, before --scale")
	f.IntVar(&o.partitions, "partitions", 1, "of each store")
	c.RunE = o.action(o.experiment, o.run, open)
	return c
}

func (o *lsmOptions) experiment(c *cobra.Command) (*experiment.Experiment, error) {
	if err := errors.Join(o.check(), checkPartitions(o.partitions)); err != nil {
		return nil, err
	}
	config, err := o.config(1)
	if err != nil {
		return nil, err
	}
	l := experiment.LSM{
		FindRates: o.findRates, Threads: o.threads, Config: config,
		Setup: experiment.Setup{Partitions: o.partitions, MemoryBytes: o.scaledMemory()},
	}
	if l.Mixes, err = o.parse(); err != nil {
		return nil, err
	}
	for _, n := range o.thresholds {
		if err := checkCount("flush-keys", uint64(n)); err != nil {
			return nil, err
		}
		l.Thresholds = append(l.Thresholds, experiment.Scaled{Full: uint64(n), Actual: uint64(max(o.scale*float64(n), min(float64(n), leastScaledThreshold)))})
	}
	for _, n := range o.keySpaces {
		if err := checkCount("keys", uint64(n)); err != nil {
			return nil, err
		}
		l.KeySpaces = append(l.KeySpaces, experiment.Scaled{Full: uint64(n), Actual: min(o.scaledKeys(uint64(n)), uint64(max(o.scale, 1)*float64(n)))})
	}
	e := l.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one mix, find rate, threshold, key space and number of threads")
	}
	if err := validate(e); err != nil {
		return nil, err
	}
	finds := slices.ContainsFunc(l.Mixes, func(m workload.Mix) bool { return m.Get+m.Delete > 0 })
	return e, refuseIdle(c, idleTheta(config.Distribution),
		idleFlags{!finds, []string{"find-rates"}, "on mixes that neither get nor delete: leave it out, or choose another mix"})
}
