package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// microbatchOptions is the command line of microbatch.
type microbatchOptions struct {
	experimentOptions
	stores      []string
	sizes       []int
	readers     []int
	partitions  int
	workers     int
	rows        uint64
	reads       uint64
	linger      time.Duration
	cache       byteSize
	readLatency time.Duration
	readDepth   int
}

// leastScaledReads bounds what --scale makes of the number of reads.
const leastScaledReads = 30_000

func newMicrobatchCommand(open opener) *cobra.Command {
	o := microbatchOptions{cache: 1 << 20}
	c := &cobra.Command{
		Use:   "microbatch",
		Short: "Measure reads by the size of their micro-batches, and draw charts",
		Long: `Measure reads by the size of their micro-batches, and draw charts.

This repeats the experiment of the article on micro-batching: 300 readers ask for
3,000,000 random keys of a table of 350,000,000 rows, unbatched, in batches of fixed
sizes, and with the adaptive default. A batch answers the reads of several callers
together. There are two stores:

  server  a server in this process, asked over loopback: a batch is a frame of the client
  disk    the embedded store, with a small block cache, on an artificial device: each read
          of a file takes --read-latency longer, and --read-depth are under way at a time.
          It stands for the database of the article. A batch is a pass of the engine

The table is made once and read by all runs. Each run adds a line to statistics.csv.`,
		Example: `  kvbench microbatch --scale 0.001 --report microbatch
  kvbench microbatch --stores disk --read-latency 100us --read-depth 0 --scale 0.001`,
		Args: cobra.NoArgs,
	}
	o.experimentOptions.register(c, experimentDefaults{runs: 3, memory: 1 << 30, valueBytes: 35, operations: []string{"get"}})
	f := c.Flags()
	f.StringSliceVar(&o.stores, "stores", []string{experiment.StoreServer, experiment.StoreDisk}, "server, disk or both")
	f.IntSliceVar(&o.sizes, "sizes", []int{1, 2, 4, 8, 16, 24, 32}, "fixed batch sizes, besides unbatched and the adaptive default")
	f.IntSliceVar(&o.readers, "readers", []int{300, 1}, "numbers of readers, each with one read at a time")
	f.IntVar(&o.partitions, "partitions", 1, "of the store; each batches its reads apart")
	f.Uint64Var(&o.rows, "rows", 350_000_000, "rows of the table, before --scale")
	f.Uint64Var(&o.reads, "reads", 3_000_000, fmt.Sprintf("reads of a run with the most readers, before --scale, which leaves at least %d; with fewer readers proportionally fewer", leastScaledReads))
	f.IntVar(&o.workers, "workers", 10, "disk: batches of a fixed size that are under way at a time, as in the article")
	f.DurationVar(&o.linger, "linger", 500*time.Microsecond, "disk: how long a batch of a fixed size waits for more reads")
	f.Var(&o.cache, "cache", "disk: block cache of the store")
	f.DurationVar(&o.readLatency, "read-latency", 500*time.Microsecond, "disk: artificial latency of each read of a file")
	f.IntVar(&o.readDepth, "read-depth", 10, "disk: reads of files at a time, as many as the article's connections; 0 means any number")
	c.RunE = o.action(o.experiment, o.run, open)
	return c
}

func (o *microbatchOptions) experiment(c *cobra.Command) (*experiment.Experiment, error) {
	if err := errors.Join(o.check(), checkPartitions(o.partitions), checkCount("rows", o.rows), checkCount("reads", o.reads)); err != nil {
		return nil, err
	}
	for _, store := range o.stores {
		if store != experiment.StoreServer && store != experiment.StoreDisk {
			return nil, fmt.Errorf("--stores %s: want server or disk", store)
		}
	}
	for _, n := range o.sizes {
		if n < 1 || n > 1024 {
			return nil, fmt.Errorf("--sizes %d: want 1 to 1024", n)
		}
	}
	switch {
	case o.workers < 1 || o.workers > loadgen.MaxWorkers:
		return nil, fmt.Errorf("--workers %d: want 1 to %d", o.workers, loadgen.MaxWorkers)
	case o.linger < 0 || o.linger > mostLinger || o.readLatency < 0 || o.readLatency > mostLinger:
		return nil, fmt.Errorf("--linger %v and --read-latency %v: want 0 to %v", o.linger, o.readLatency, mostLinger)
	case o.readDepth < 0 || o.readDepth > loadgen.MaxWorkers:
		return nil, fmt.Errorf("--read-depth %d: want 0 to %d", o.readDepth, loadgen.MaxWorkers)
	case o.cache == 0:
		return nil, errors.New("--cache 0: want the size of the block cache, such as 1MiB")
	}
	config, err := o.config(o.rows)
	if err != nil {
		return nil, err
	}
	config.Duration, config.Present = 0, config.Keys
	e := experiment.Microbatch{
		Stores: o.stores, Sizes: o.sizes, Readers: o.readers, Config: config,
		Reads: max(uint64(o.scale*float64(o.reads)), min(o.reads, leastScaledReads)),
		Setup: experiment.Setup{
			Partitions: o.partitions, MemoryBytes: o.scaledMemory(), CacheBytes: int64(o.cache),
			ReadLatency: o.readLatency, ReadDepth: o.readDepth, Reads: experiment.ReadBatching{Linger: o.linger, Runners: o.workers},
		},
	}.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one store and number of readers")
	}
	if err := validate(e); err != nil {
		return nil, err
	}
	return e, o.refuseIdle(c)
}

// refuseIdle returns an error for a flag that has no effect.
func (o *microbatchOptions) refuseIdle(c *cobra.Command) error {
	alone := slices.Max(o.readers) == 1
	measured := func(size int) bool { return !alone || size == experiment.LoneBatchSize }
	return refuseIdle(c,
		idleFlags{
			!slices.Contains(o.stores, experiment.StoreDisk), []string{"workers", "linger", "cache", "read-latency", "read-depth"},
			"on the store server: leave it out, or add disk to --stores",
		},
		idleFlags{
			!slices.ContainsFunc(o.sizes, measured), []string{"workers"},
			"without a fixed batch size that is measured: leave it out, or add one to --sizes",
		},
		idleFlags{
			!slices.ContainsFunc(o.sizes, func(n int) bool { return n > 1 && measured(n) }), []string{"linger"},
			"without a fixed batch size above 1 that is measured: leave it out, or add one to --sizes",
		},
		idleFlags{
			slices.ContainsFunc(o.sizes, func(n int) bool { return !measured(n) }), []string{"sizes"},
			fmt.Sprintf("but for %d if every reader is alone, because it cannot fill a batch: leave out the other sizes, or add a number of readers above 1 to --readers", experiment.LoneBatchSize),
		},
		idleFlags{
			o.readLatency == 0, []string{"read-depth"},
			"with --read-latency 0, because it limits reads of the artificial device: leave it out, or choose a latency above 0",
		},
	)
}

// run loads the table, measures, and writes the report and the statistics.
func (o *microbatchOptions) run(c *cobra.Command, e *experiment.Experiment, result *results.Result, open opener) error {
	live := newLiveView(c.ErrOrStderr())
	dir, err := stores.make()
	if err != nil {
		return err
	}
	if !result.Complete() {
		err = o.load(c.Context(), &e.Cells[0], dir, open, live)
	}
	if err == nil {
		err = o.runOn(c, e, result, live, func(s experiment.Setup) (experiment.Store, error) {
			return openStore(&o.experimentOptions, s, dir, open)
		})
		if anyRun(result) {
			err = errors.Join(err, results.AppendCSV(filepath.Join(o.report, experiment.StatisticsFile), experiment.StatisticsHead, experiment.Statistics(result)))
		}
	}
	return errors.Join(err, stores.remove(dir))
}

// load makes the table that all cells read.
func (o *microbatchOptions) load(ctx context.Context, cell *experiment.Cell, dir string, open opener, live *liveView) error {
	store, err := openStore(&o.experimentOptions, experiment.Setup{Partitions: o.partitions, MemoryBytes: cell.Setup.MemoryBytes}, dir, open)
	if err != nil {
		return err
	}
	config := cell.Config
	config.Workers, config.Operations = 16, 16 // a run preloads; its reads are no more than needed
	config.Preload, config.Present = config.Present, 0
	_, err = workload.Run(ctx, store.Target, config, workload.Observer{Preload: loadgen.Counted("loading the table", "rows", live.progress)})
	if store.Settle != nil && err == nil {
		err = loadgen.Watch("waiting for flushes and compactions", live.progress, func() error { return store.Settle(ctx) })
	}
	live.end()
	return errors.Join(err, store.Close())
}
