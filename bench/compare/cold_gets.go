package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// coldThreads is the number of threads that read from the disk.
const coldThreads = 16

// coldRead is a kind of gets from the disk.
type coldRead struct {
	name         string
	distribution workload.Distribution
	valueBytes   int
}

var (
	coldUniform = coldRead{"uniform 100 B", workload.Uniform, readValueBytes}
	coldZipf    = coldRead{"zipfian 1 KiB", workload.ScrambledZipfian, mixValueBytes}
)

func coldCell(r coldRead) string { return fmt.Sprintf("cold get, %s, %d threads", r.name, coldThreads) }

// coldLoadBytes is the memory with which the stores are loaded: with little, that takes
// far longer than the gets.
const coldLoadBytes = 1 << 30

// coldContest reads a store that has settled and is far larger than its memory, while
// nothing stays in the page cache. The heap has no soft limit: with so little memory it
// would be that of the generator.
func coldContest(o *contestOptions, r coldRead) *contest {
	c := getContest(o, []*read{{r.name, r.distribution, 1, 1}}, r.valueBytes, coldThreads)
	c.name = coldCell(r)
	c.setup.HeapBytes, c.loadBytes = 0, coldLoadBytes
	c.cells[0].name, c.cells[0].cold = coldCell(r), true
	return c
}

func newColdCommand() *cobra.Command {
	o, zipf := longPlan.coldUniform, longPlan.coldZipf
	var place contestOptions
	var engines []string
	var scale float64
	c := &cobra.Command{
		Use:   "cold",
		Short: "Compare gets from the disk, which nothing but the engine's own cache serves",
		Long: `Compare gets from the disk, which nothing but the engine's own cache serves.

The files of the store are dropped from the page cache ten times a second.
  uniform 100 B   20 million keys, 163 MiB of memory
  zipfian 1 KiB   2 million keys, 683 MiB of memory`,
		Example: "  compare cold --scale 0.1 --slot 5s --engines kvd,pebble,pebble-4k",
		Args:    cobra.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&engines, "engines", o.engines, "engines to compare")
	f.IntVar(&place.rounds, "rounds", 3, "rounds that are measured")
	f.DurationVar(&place.slot, "slot", 5*time.Second, "how long an engine runs in each round")
	f.Float64Var(&scale, "scale", 1, "share of the keys and of the memory")
	place.registerPlace(f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if scale <= 0 || scale > 1 {
			return fmt.Errorf("a scale of %v, want more than 0, and at most 1", scale)
		}
		for _, o := range []*contestOptions{&o, &zipf} {
			o.engines, o.rounds, o.slot = engines, place.rounds, place.slot
			o.keys, o.memory = int(scale*float64(o.keys)), max(int64(scale*float64(o.memory)), minMemoryMiB)
			if err := o.validate(); err != nil {
				return err
			}
		}
		place.engines, place.memory = engines, o.memory
		return runContests(c, &place, coldContest(&o, coldUniform), coldContest(&zipf, coldZipf))
	}
	return c
}
