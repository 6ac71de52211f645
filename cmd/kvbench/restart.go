package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// restartOptions is the command line of restart.
type restartOptions struct {
	experimentOptions
	keys       []uint
	logs       []string
	partitions int
	keepPages  bool
}

// restartAtFullScale has the sizes of the article on JitCask, with 20 million keys as the
// most. Runs are the reads after a start.
var restartAtFullScale = experimentDefaults{runs: 3, duration: 10 * time.Second, keyBytes: 64, valueBytes: 2048, operations: []string{"start"}}

func newRestartCommand(open opener) *cobra.Command {
	var o restartOptions
	c := &cobra.Command{
		Use:   "restart",
		Short: "Measure starts by size of data and log, after a kill and a clean stop, and draw charts",
		Long: `Measure starts by size of data and log, after a kill and a clean stop, and draw charts.

Each store is filled by a process of its own: it puts all keys, flushes and merges them,
and puts as many again as --logs says, which stay in the log. Then it is killed with
SIGKILL. The store is started and read from, stopped cleanly, and started again. Each
start is timed up to the first answer, and the report has the memory that a key takes.
The files are dropped from the page cache before each start, unless --keep-pages is given.

The full scale has the sizes of the article on JitCask: 64-byte keys, 2 KiB values, up to
40 GB. With --scale 0.005 there are 200 times fewer keys and smaller segments of the log,
with the same code.`,
		Example: `  kvbench restart --scale 0.005 --report restart
  kvbench restart --keys 1000000 --logs 0,100MiB --value-size 100`,
		Args: cobra.NoArgs,
	}
	o.experimentOptions.register(c, restartAtFullScale)
	f := c.Flags()
	f.UintSliceVar(&o.keys, "keys", []uint{1_000_000, 5_000_000, 20_000_000}, "numbers of keys, before --scale")
	f.StringSliceVar(&o.logs, "logs", []string{"0", "128MiB", "512MiB"}, "bytes of entries that are not flushed, before --scale")
	f.IntVar(&o.partitions, "partitions", 16, "partitions of the store")
	f.BoolVar(&o.keepPages, "keep-pages", false, "leave the files in the page cache")
	c.RunE = o.action(func(*cobra.Command) (*experiment.Experiment, error) { return o.experiment(open) }, o.run, open)
	return c
}

func (o *restartOptions) experiment(open opener) (*experiment.Experiment, error) {
	if err := errors.Join(o.check(), checkPartitions(o.partitions)); err != nil {
		return nil, err
	}
	config, err := o.config(1)
	if err != nil {
		return nil, err
	}
	config.Workers, config.Duration = restartWorkers, o.scaledDuration(leastShortDuration)
	x := experiment.Restart{Config: config, KeepPages: o.keepPages, Remove: stores.remove}
	for _, n := range o.keys {
		if err := checkCount("keys", uint64(n)); err != nil {
			return nil, err
		}
		x.Keys = append(x.Keys, max(uint64(math.Round(o.scale*float64(n))), leastRestartKeys))
	}
	var largest int64
	for _, text := range o.logs {
		var size byteSize
		if err := size.Set(text); err != nil {
			return nil, fmt.Errorf("--logs: %w", err)
		}
		scaled := int64(o.scale * float64(size))
		largest = max(largest, scaled)
		x.LogBytes = append(x.LogBytes, scaled)
	}
	target := targetOptions{
		durability: o.durability, level: o.level, partitions: o.partitions, memory: o.memory,
		memtableBytes: max(restartMemtables, 4*largest), // so that none is flushed before the kill
		segmentBytes:  int64(max(min(o.scale, 1)*restartSegments, leastRestartSegments)),
	}
	x.Fill = func(ctx context.Context, keys, logKeys uint64, told func(loadgen.Progress)) (string, error) {
		return fillAndKill(ctx, &filling{Target: fillTarget(&target), Config: x.Config, Keys: keys, LogKeys: logKeys}, told)
	}
	x.Start = func(dir string) (*experiment.Started, error) { return startStore(open, target, dir) }
	e := x.Experiment()
	if len(e.Cells) == 0 {
		return nil, errors.New("nothing to measure: name at least one number of keys and one size of the log")
	}
	return e, validate(e)
}

const (
	restartWorkers   = 16
	restartMemtables = 128 << 20 // the engine's default
	leastRestartKeys = 1000

	restartSegments      = 64 << 20 // the engine's default
	leastRestartSegments = 256 << 10
)

// startStore opens a store of a directory that stays.
func startStore(open opener, o targetOptions, dir string) (*experiment.Started, error) {
	o.data = dir
	target, info, err := open(&o)
	if err != nil {
		return nil, err
	}
	s := &experiment.Started{Store: storeOf(target, &info, dir)}
	if e, ok := target.(*engineTarget); ok {
		s.Records = e.engine.Recovery().Records
	}
	return s, nil
}
