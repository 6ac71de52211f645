package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/workload"
)

// readsOptions is the command line of reads.
type readsOptions struct {
	experimentOptions
	distributions []string
	threads       []int
	partitions    int
	keys          uint64
	keepPages     bool
}

// readsKeys is the number of keys of the article.
const readsKeys = 20_000_000

// readsAtFullScale has the sizes of the article, whose values were stored in three quarters
// of their length; kvd stores them as they are.
var readsAtFullScale = experimentDefaults{runs: 3, duration: time.Minute, memory: 2 << 30, keyBytes: 64, valueBytes: 2048, operations: []string{"get"}}

func newReadsCommand(open opener) *cobra.Command {
	var o readsOptions
	all := []workload.Distribution{workload.Uniform, workload.Zipfian, workload.ScrambledZipfian, workload.Latest}
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = string(d)
	}
	c := &cobra.Command{
		Use:   "reads",
		Short: "Measure reads of data larger than the cache beside raw preads, and draw charts",
		Long: `Measure reads of data larger than the cache beside raw preads of the same files, and
draw charts.

This repeats the reads of the article on JitCask: 20,000,000 keys of 64 bytes, values of
2 KiB. Each run loads a new store. Then each distribution is measured, and after each raw
preads: as many threads read as many bytes as a read of the store had, at random places
of the same files. The files are dropped from the page cache before and during each
measurement, unless --keep-pages is given; the report says which. With --scale 0.01 the
data are a hundredth, and each measurement takes a second, with the same code.`,
		Example: `  kvbench reads --scale 0.01 --runs 1 --report reads
  kvbench reads --distributions zipfian --theta 0.999 --threads 1,16,64 --scale 0.1`,
		Args: cobra.NoArgs,
	}
	o.experimentOptions.register(c, readsAtFullScale)
	o.registerTheta(c)
	f := c.Flags()
	f.StringSliceVar(&o.distributions, "distributions", names, "of keys: "+strings.Join(names, ", ")+", sequential or hotspot")
	f.IntSliceVar(&o.threads, "threads", []int{1, 16}, "numbers of threads, each with one read at a time")
	f.IntVar(&o.partitions, "partitions", 4, "partitions of the store")
	f.Uint64Var(&o.keys, "keys", readsKeys, "number of keys, before --scale")
	f.BoolVar(&o.keepPages, "keep-pages", false, "leave the files in the page cache")
	c.RunE = o.action(o.experiment, o.run, open)
	return c
}

func (o *readsOptions) experiment(c *cobra.Command) (*experiment.Experiment, error) {
	if err := errors.Join(o.check(), checkPartitions(o.partitions), checkCount("keys", o.keys)); err != nil {
		return nil, err
	}
	config, err := o.config(o.keys)
	if err != nil {
		return nil, err
	}
	x := experiment.Reads{Threads: o.threads, Config: config, KeepPages: o.keepPages}
	x.Config.Duration = o.scaledDuration(leastShortDuration)
	memory := o.scaledMemory()
	x.Setup = experiment.Setup{Partitions: o.partitions, MemoryBytes: memory, CacheBytes: memory / 4, CountReads: true}
	for _, name := range o.distributions {
		d, err := workload.ParseDistribution(name)
		if err != nil {
			return nil, err
		}
		x.Distributions = append(x.Distributions, d)
	}
	e := x.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one distribution and one number of threads")
	}
	if err := validate(e); err != nil {
		return nil, err
	}
	return e, refuseIdle(c, idleTheta(x.Distributions...))
}
