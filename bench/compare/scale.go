package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/workload"
)

// scaleOptions describe which stores are measured and how.
type scaleOptions struct {
	contestOptions // of these: dir, profiles, out, slot and memory
	sizes          []int
	partitions     []int
	sizePartitions int // of the stores of different sizes
	partitionKeys  int // of the stores of different partitions
	valueBytes     int
	threads        int
	small          int64 // MiB, of the store whose data are far larger
}

func newScaleCommand() *cobra.Command {
	var o scaleOptions
	c := &cobra.Command{
		Use:   "scale",
		Short: "Measure how the cost of an operation grows with the data and with partitions",
		Long: `Measure how the cost of an operation grows with the data and with partitions.

Each store is loaded and settles, is read and scanned, is opened again with little
memory and nothing in the page cache and read, is opened again and written, and
opened once more. Each opening has a process of its own. Then it is removed.

With --out each store that is done is a line of a file, and a run that is given the
file of an interrupted run continues that run.`,
		Example: `  compare scale --keys 1000000 --partitions 1,4 --partition-keys 1000000 --slot 2s
  compare scale --out scale.jsonl`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntSliceVar(&o.sizes, "keys", []int{1_000_000, 10_000_000, 50_000_000}, "sizes of the stores, in keys")
	f.IntVar(&o.sizePartitions, "size-partitions", 4, "partitions of the stores of these sizes; 0: no such stores")
	f.IntSliceVar(&o.partitions, "partitions", []int{1, 4, 16}, "numbers of partitions")
	f.IntVar(&o.partitionKeys, "partition-keys", 10_000_000, "keys of the stores with these partitions; 0: no such stores")
	f.IntVar(&o.valueBytes, "value-size", readValueBytes, "bytes of a value")
	f.IntVar(&o.threads, "threads", readThreads, "goroutines, each with one operation at a time")
	f.DurationVar(&o.slot, "slot", 10*time.Second, "how long each kind of operation runs")
	f.Int64Var(&o.memory, "memory", 1024, "MiB of memtables and caches")
	f.Int64Var(&o.small, "small-memory", 64, "MiB of them where the data shall be far larger")
	o.registerPlace(f)
	if err := f.MarkHidden("profile"); err != nil {
		panic(err) // no such flag
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return failed(measureScale(c.Context(), &o, c.OutOrStdout(), c.ErrOrStderr()))
	}
	return c
}

func (o *scaleOptions) validate() error {
	if len(o.cases()) == 0 {
		return errors.New("no stores")
	}
	for _, memory := range []int64{o.memory, o.small} {
		if memory < minMemoryMiB {
			return fmt.Errorf("%d MiB of memory, want at least %d", memory, minMemoryMiB)
		}
	}
	for _, c := range o.cases() {
		if _, err := findEngine(withPartitions(c.Partitions)); err != nil {
			return err
		}
		data := o.data(c)
		if err := data.validate(); err != nil {
			return err
		}
		for _, run := range []workload.Config{o.gets(c, 1), o.puts(c)} {
			if err := run.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// smallCache is the block cache of a store with little memory.
func (o *scaleOptions) smallCache() int64 { return peers.Options{MemoryBytes: o.small << 20}.Cache() }

// scaleCase is a store of one size.
type scaleCase struct {
	Keys       int `json:"keys"`
	Partitions int `json:"partitions"`
}

func (c scaleCase) String() string {
	return fmt.Sprintf("%d keys, %d partitions", c.Keys, c.Partitions)
}

// bySize and byPartitions are the two rows of the cross of both parameters.
func (o *scaleOptions) bySize() (cases []scaleCase) {
	if o.sizePartitions == 0 {
		return nil
	}
	for _, n := range o.sizes {
		cases = append(cases, scaleCase{n, o.sizePartitions})
	}
	return cases
}

func (o *scaleOptions) byPartitions() (cases []scaleCase) {
	if o.partitionKeys == 0 {
		return nil
	}
	for _, n := range o.partitions {
		cases = append(cases, scaleCase{o.partitionKeys, n})
	}
	return cases
}

// cases returns all stores, each once.
func (o *scaleOptions) cases() (cases []scaleCase) {
	for _, c := range slices.Concat(o.bySize(), o.byPartitions()) {
		if !slices.Contains(cases, c) {
			cases = append(cases, c)
		}
	}
	return cases
}

func (o *scaleOptions) data(c scaleCase) dataset {
	return dataset{Keys: c.Keys, ValueBytes: o.valueBytes, Order: orderStrided, Point: true}
}

// gets read keys that are present or, with a find rate of 0, absent. The warm-up is as
// long as the measurement, since a large cache takes seconds to fill.
func (o *scaleOptions) gets(c scaleCase, findRate float64) workload.Config {
	return workload.Config{
		Mix: workload.Mix{Name: "gets", Get: 100}, Workers: o.threads, Keys: uint64(c.Keys), Present: uint64(c.Keys),
		ValueBytes: o.valueBytes, FindRate: findRate, Distribution: workload.Uniform, Seed: 1,
		Warmup: o.slot, Duration: o.slot, Interval: time.Second,
	}
}

// coldGets are measured from the first one on.
func (o *scaleOptions) coldGets(c scaleCase) workload.Config {
	cfg := o.gets(c, 1)
	cfg.Warmup = 0
	return cfg
}

// puts overwrite keys that are present.
func (o *scaleOptions) puts(c scaleCase) workload.Config {
	return workload.Config{
		Mix: workload.Mix{Name: "puts", Put: 100}, Workers: o.threads, Keys: uint64(c.Keys),
		ValueBytes: o.valueBytes, Distribution: workload.Uniform, Seed: 2, Duration: o.slot, Interval: time.Second,
	}
}

// measureScale measures all stores that no earlier run has measured, and prints all
// results.
func measureScale(ctx context.Context, o *scaleOptions, stdout, stderr io.Writer) (err error) {
	settings := o.settings()
	log, err := openScaleLog(o.out, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	place := o.contestOptions
	place.out = "" // the arena reports no slots
	return withArena(ctx, &place, stderr, func(a *arena) error {
		cases := o.cases()
		for i, c := range cases {
			if log.has(c) {
				a.progress.Line("%v: measured by an earlier run", c)
				continue
			}
			a.progress.Line("%v: store %d of %d", c, i+1, len(cases))
			r, err := a.scaleStore(ctx, o, c)
			if err != nil {
				return fmt.Errorf("%v: %w", c, err)
			}
			if err := log.add(scaleLine{settings, r}); err != nil {
				return err
			}
		}
		report.PrintEnvironment(stdout, a.dir, commit)
		return printScale(stdout, o, log.results)
	})
}
