package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/workload"
)

// partitionsOptions is the command line of partitions.
type partitionsOptions struct {
	experimentOptions
	mixOptions
	partitions []int
	keys       uint64
}

// partitionsKeys is the key space of the article.
const partitionsKeys = 10_000_000

// mixesAtFullScale are the settings of the experiments with the four mixes: the hour and
// the value size of the articles.
var mixesAtFullScale = experimentDefaults{runs: 3, duration: time.Hour, memory: 2 << 30, valueBytes: 1024, distribution: workload.Uniform}

func newPartitionsCommand(open opener) *cobra.Command {
	var o partitionsOptions
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
	o.experimentOptions.register(c, mixesAtFullScale)
	o.mixOptions.register(c, []int{1, 4, 16, 32})
	f := c.Flags()
	f.IntSliceVar(&o.partitions, "partitions", []int{1, 4, 8, 16}, "numbers of partitions")
	f.Uint64Var(&o.keys, "keys", partitionsKeys, "size of the key space, before --scale")
	c.RunE = o.action(o.experiment, o.run, open)
	return c
}

func (o *partitionsOptions) experiment(c *cobra.Command) (*experiment.Experiment, error) {
	if err := errors.Join(o.check(), checkCount("keys", o.keys)); err != nil {
		return nil, err
	}
	config, err := o.config(o.keys)
	if err != nil {
		return nil, err
	}
	config.FindRate = 0.5
	p := experiment.Partitions{
		Partitions: o.partitions, Threads: o.threads,
		Memory: o.scaledMemory(), Config: config,
	}
	if p.Mixes, err = o.parse(); err != nil {
		return nil, err
	}
	e := p.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one mix, number of partitions and number of threads")
	}
	for i := range e.Cells {
		if err := checkPartitions(e.Cells[i].Setup.Partitions); err != nil {
			return nil, err
		}
	}
	if err := validate(e); err != nil {
		return nil, err
	}
	return e, refuseIdle(c, idleTheta(config.Distribution))
}
