package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/workload"
)

// The names of cells, by which goals refer to them.
func putCell(valueBytes, writers int) string {
	return fmt.Sprintf("sync put, %d B, %d writers", valueBytes, writers)
}
func mixCell(mix string, threads int) string { return fmt.Sprintf("%s, %d threads", mix, threads) }
func getCell(what string) string             { return "get " + what }

// The names of loads.
const (
	loadCell       = "load, atomic batches of 1000"
	singleLoadCell = "load, single puts"
)

// putContest returns the cells of synced puts of one size.
func putContest(o *contestOptions, valueBytes int, writers []int) *contest {
	c := o.contest(fmt.Sprintf("sync put, %d B", valueBytes))
	c.setup = newSetup(o.memory, true)
	for _, n := range writers {
		c.cells = append(c.cells, cell{name: putCell(valueBytes, n), run: &workload.Config{
			Mix: workload.Mix{Name: "puts", Put: 100}, Workers: n, Keys: uint64(o.keys), ValueBytes: valueBytes,
			Distribution: workload.Uniform, Seed: uint64(1000 * n),
			Warmup: o.slot / 10, Duration: o.slot, Interval: time.Second,
		}})
	}
	return c
}

// mixContest runs one of the mixes of the articles on an initially empty store, with
// buffered durability.
func mixContest(o *contestOptions, mix workload.Mix, valueBytes, threads int) *contest {
	c := o.contest(mixCell(mix.Name, threads))
	c.setup = newSetup(o.memory, false)
	c.cells = []cell{{name: c.name, run: &workload.Config{
		Mix: mix, Workers: threads, Keys: uint64(o.keys), ValueBytes: valueBytes, FindRate: 0.5,
		Distribution: workload.Uniform, Seed: 1, Duration: o.slot, Interval: time.Second,
	}}}
	return c
}

// read is a way to choose the keys of reads.
type read struct {
	name         string
	distribution workload.Distribution
	findRate     float64
	batch        int
}

var reads = []read{
	{"uniform", workload.Uniform, 1, 1},
	{"zipfian", workload.ScrambledZipfian, 1, 1},
	{"absent", workload.Uniform, 0, 1},
	{"batches of 16", workload.Uniform, 1, 16},
}

func readNames() []string {
	names := make([]string, len(reads))
	for i := range reads {
		names[i] = reads[i].name
	}
	return names
}

func findRead(name string) (*read, error) {
	i := slices.IndexFunc(reads, func(r read) bool { return r.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no reads are named %q; choose of %q", name, readNames())
	}
	return &reads[i], nil
}

// getContest reads a store that was loaded and has settled. The load is in key order:
// after settling that makes no difference, and it is ten times faster for bbolt.
func getContest(o *contestOptions, wanted []*read, valueBytes, threads int) *contest {
	c := o.contest("get")
	c.setup = newSetup(o.memory, false)
	c.setup.Data = dataset{Keys: o.keys, ValueBytes: valueBytes, Order: orderSorted, Point: true}
	for _, r := range wanted {
		c.cells = append(c.cells, cell{name: getCell(r.name), run: &workload.Config{
			Mix: workload.Mix{Name: "gets", Get: 100}, Workers: threads, Keys: uint64(o.keys), Present: uint64(o.keys),
			ValueBytes: valueBytes, FindRate: r.findRate, Distribution: r.distribution, GetBatch: r.batch, Seed: 1,
			Warmup: o.slot / 4, Duration: o.slot, Interval: time.Second,
		}})
	}
	return c
}

// loadContest repeatedly loads a store, in batches or singly, and lets it settle.
func loadContest(o *contestOptions, valueBytes int, singly bool) *contest {
	name := loadCell
	if singly {
		name = singleLoadCell
	}
	c := o.contest(name)
	c.fresh = true
	c.setup = newSetup(o.memory, false)
	c.setup.Data = dataset{Keys: o.keys, ValueBytes: valueBytes, Order: orderRandom, Point: true, Singly: singly}
	c.cells = []cell{{name: name}}
	return c
}
