package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

func newPutCommand() *cobra.Command {
	var o contestOptions
	var sizes, writers []int
	c := &cobra.Command{
		Use:     "put",
		Short:   "Compare puts that wait for the disk",
		Example: "  compare put --writers 256 --value-size 128 --engines kvd,pebble --profile /tmp/profiles",
		Args:    cobra.NoArgs,
	}
	o.register(c.Flags(), []string{ours, ours4, "pebble", "goleveldb"}, mixKeys, 3*time.Second)
	c.Flags().IntSliceVar(&sizes, "value-size", putSizes, "bytes of a value")
	c.Flags().IntSliceVar(&writers, "writers", putWriters, "goroutines, each with one put at a time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var contests []*contest
		for _, size := range sizes {
			contests = append(contests, putContest(&o, size, writers))
		}
		return runContests(c, &o, contests...)
	}
	return c
}

var (
	putSizes   = []int{128, 1024}
	putWriters = []int{1, 16, 64, 256}
	mixThreads = []int{4, 16}
)

// The default sizes of stores and values.
const (
	mixKeys        = 10_000_000
	mixValueBytes  = 1024
	readKeys       = 5_000_000
	readValueBytes = 100
	readThreads    = 2
)

func newMixCommand() *cobra.Command {
	var o contestOptions
	var valueBytes int
	var mixes []string
	var threads []int
	c := &cobra.Command{
		Use:   "mix",
		Short: "Compare the mixes of puts, deletes and gets of the LSM-tree articles",
		Long: `Compare the mixes of puts, deletes and gets of the LSM-tree articles.

Stores are empty at first, and an engine goes on in each round where it stopped in
the one before; with --fresh it begins anew.`,
		Example: "  compare mix --mix PUT_HEAVY --threads 4 --slot 60s --fresh --engines kvd,pebble,pebble-blob",
		Args:    cobra.NoArgs,
	}
	o.register(c.Flags(), []string{ours, ours4, "pebble", "pebble-blob", "pebble-4k-blob"}, mixKeys, 20*time.Second)
	c.Flags().BoolVar(&o.fresh, "fresh", false, "give every slot an empty store")
	c.Flags().IntVar(&valueBytes, "value-size", mixValueBytes, "bytes of a value")
	c.Flags().StringSliceVar(&mixes, "mix", mixNames(), "which ones")
	c.Flags().IntSliceVar(&threads, "threads", mixThreads, "goroutines, each with one operation at a time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var contests []*contest
		for _, name := range mixes {
			mix, err := workload.ParseMix(name)
			if err != nil {
				return err
			}
			for _, n := range threads {
				contests = append(contests, mixContest(&o, mix, valueBytes, n))
			}
		}
		return runContests(c, &o, contests...)
	}
	return c
}

func mixNames() []string {
	names := make([]string, len(workload.Mixes))
	for i := range workload.Mixes {
		names[i] = workload.Mixes[i].Name
	}
	return names
}

func newGetCommand() *cobra.Command {
	var o contestOptions
	var valueBytes, threads int
	var names []string
	c := &cobra.Command{
		Use:     "get",
		Short:   "Compare reads of a store that has settled",
		Example: "  compare get --reads uniform,absent --engines kvd,bbolt",
		Args:    cobra.NoArgs,
	}
	o.register(c.Flags(), []string{ours, ours4, "pebble", "pebble-4k", "bbolt"}, readKeys, 3*time.Second)
	c.Flags().IntVar(&valueBytes, "value-size", readValueBytes, "bytes of a value")
	c.Flags().IntVar(&threads, "threads", readThreads, "goroutines, each with one read at a time")
	c.Flags().StringSliceVar(&names, "reads", readNames(), "which ones")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var wanted []*read
		for _, name := range names {
			r, err := findRead(name)
			if err != nil {
				return err
			}
			wanted = append(wanted, r)
		}
		return runContests(c, &o, getContest(&o, wanted, valueBytes, threads))
	}
	return c
}

func newLoadCommand() *cobra.Command {
	var o contestOptions
	var valueBytes int
	c := &cobra.Command{
		Use:   "load",
		Short: "Compare loads of keys in random order, in atomic batches and singly",
		Args:  cobra.NoArgs,
	}
	o.register(c.Flags(), []string{ours, ours4, "pebble"}, readKeys, 0)
	if err := c.Flags().MarkHidden("slot"); err != nil {
		panic(err) // no such flag
	}
	c.Flags().IntVar(&valueBytes, "value-size", readValueBytes, "bytes of a value")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return runContests(c, &o, loadContest(&o, valueBytes, false), loadContest(&o, valueBytes, true))
	}
	return c
}
