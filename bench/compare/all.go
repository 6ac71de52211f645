package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

func newAllCommand() *cobra.Command {
	var o contestOptions
	var long bool
	c := &cobra.Command{
		Use:   "all",
		Short: "Compare everything, and say which goals are reached",
		Long: `Compare everything, and say which goals are reached.

The short form takes some ten minutes: small stores, short slots, and of the peers
those that were best in the long form. What shows itself only with time is not in it.
The long form takes hours.`,
		Args: cobra.NoArgs,
	}
	o.registerPlace(c.Flags())
	c.Flags().BoolVar(&long, "long", false, "with full stores, long slots and every engine")
	c.RunE = func(c *cobra.Command, _ []string) error {
		p := shortPlan
		if long {
			p = longPlan
		}
		return failed(compareAll(c.Context(), &o, &p, c.OutOrStdout(), c.ErrOrStderr()))
	}
	return c
}

// compareAll runs every contest of a plan and prints the results.
func compareAll(ctx context.Context, o *contestOptions, p *plan, stdout, stderr io.Writer) error {
	return withArena(ctx, o, stderr, func(a *arena) error {
		if len(native) == 0 {
			a.progress.Line("RocksDB DOES NOT TAKE PART: install librocksdb-dev and build with the tag rocksdb")
		}
		slots, err := holdAll(ctx, a, p.contests())
		if err != nil {
			return err
		}
		for _, o := range []*scanOptions{&p.scan, &p.looseScan} {
			scans, err := scanSlots(ctx, a, o)
			if err != nil {
				return err
			}
			slots = append(slots, scans...)
		}
		return errors.Join(printReport(stdout, a, slots), printUnjudged(stdout, slots))
	})
}

// plan says how much of each contest is run.
type plan struct {
	put, mix, get, load, single, txn, scanMix, coldUniform, coldZipf contestOptions

	scan, looseScan scanOptions
	fewMixes        bool // DELETE_HEAVY and BALANCED with the fewest threads alone
	cross           contestOptions
	// withTime runs what shows itself only with time: cross, and the long runs.
	withTime  bool
	long      contestOptions // of the long PUT_HEAVY run
	quiet     time.Duration  // of GET_HEAVY with a pulse
	endurance time.Duration
}

var shortPlan = plan{
	put:         contestOptions{engines: []string{ours, ours4, "pebble", "goleveldb"}, slot: 700 * time.Millisecond, keys: mixKeys, rounds: 3, memory: 256},
	mix:         contestOptions{engines: []string{ours, "pebble-blob", "pebble-4k-blob"}, slot: 2 * time.Second, keys: mixKeys, rounds: 3, memory: 256},
	get:         contestOptions{engines: slices.Concat([]string{ours, ours4, "pebble", "pebble-4k", "bbolt"}, namesOf(native)), slot: time.Second, keys: 1_000_000, rounds: 3, memory: 1024},
	load:        contestOptions{engines: []string{ours, ours4, "pebble"}, keys: 1_000_000, rounds: 3, memory: 256},
	single:      contestOptions{engines: []string{ours, ours4, "pebble"}, keys: 300_000, rounds: 3, memory: 256},
	txn:         contestOptions{engines: []string{ours, ours4, "pebble"}, slot: 1500 * time.Millisecond, keys: 300_000, rounds: 3, memory: 256},
	scanMix:     contestOptions{engines: scanMixEngines, slot: 1500 * time.Millisecond, keys: 1_000_000, rounds: 3, memory: 256},
	coldUniform: contestOptions{engines: []string{ours, ours4, "pebble", "pebble-4k"}, slot: 1200 * time.Millisecond, keys: 2_000_000, rounds: 3, memory: minMemoryMiB},
	coldZipf:    contestOptions{engines: []string{ours, ours4, "pebble", "pebble-4k"}, slot: 1200 * time.Millisecond, keys: 300_000, rounds: 3, memory: 100},
	scan: scanOptions{
		data:    dataset{Keys: 1_000_000, ValueBytes: readValueBytes, Order: orderSorted},
		engines: []string{ours, ours4, ours16, "pebble", "pebble-4k", "bbolt"}, rounds: 3, shortScans: 10_000, memory: 1024,
	},
	looseScan: scanOptions{
		data:    dataset{Keys: 1_000_000, ValueBytes: readValueBytes, Order: orderRandom},
		engines: []string{ours, ours4, "pebble", "pebble-4k"}, rounds: 3, shortScans: 1, memory: 256, loose: true,
	},
	fewMixes: true,
}

var longPlan = plan{
	put:         contestOptions{engines: putEngines, slot: 5 * time.Second, keys: mixKeys, rounds: 3, memory: 1024},
	mix:         contestOptions{engines: mixEngines, slot: time.Minute, keys: mixKeys, rounds: 3, memory: 1024, fresh: true},
	get:         contestOptions{engines: getEngines, slot: 5 * time.Second, keys: readKeys, rounds: 5, memory: 1024},
	load:        contestOptions{engines: loadEngines, keys: readKeys, rounds: 3, memory: 1024},
	single:      contestOptions{engines: loadEngines, keys: readKeys, rounds: 3, memory: 1024},
	txn:         contestOptions{engines: []string{ours, ours4, "pebble"}, slot: 10 * time.Second, keys: transactionRecords, rounds: 3, memory: 1024},
	scanMix:     contestOptions{engines: scanMixEngines, slot: 20 * time.Second, keys: readKeys, rounds: 3, memory: 1024},
	coldUniform: contestOptions{engines: []string{ours, ours4, "pebble", "pebble-4k"}, slot: 10 * time.Second, keys: 20_000_000, rounds: 3, memory: 163},
	coldZipf:    contestOptions{engines: []string{ours, ours4, "pebble", "pebble-4k"}, slot: 10 * time.Second, keys: 2_000_000, rounds: 3, memory: 683},
	scan: scanOptions{
		data:    dataset{Keys: readKeys, ValueBytes: readValueBytes, Order: orderSorted},
		engines: scanEngines, rounds: 5, shortScans: 50_000, memory: 1024,
	},
	looseScan: scanOptions{
		data:    dataset{Keys: readKeys, ValueBytes: readValueBytes, Order: orderRandom},
		engines: []string{ours, ours4, "pebble", "pebble-4k"}, rounds: 5, shortScans: 1, memory: 1024, loose: true,
	},
	cross:     contestOptions{engines: crossEngines, slot: 20 * time.Second, keys: mixKeys, rounds: 3, memory: 1024},
	withTime:  true,
	long:      contestOptions{engines: []string{ours, "pebble", "pebble-blob", "pebble-4k-blob"}, slot: 5 * time.Minute, keys: mixKeys, rounds: 1, memory: 1024, fresh: true},
	quiet:     5 * time.Minute,
	endurance: 10 * time.Minute,
}

// The engines of the long form. bbolt, which allows one writer at a time and rewrites
// whole pages, is left out of the mixes, and of loads in random order.
var (
	putEngines  = append([]string{ours, ours4, "pebble", "goleveldb", "badger", "bbolt"}, namesOf(native)...)
	mixEngines  = append([]string{ours, ours4, "pebble", "pebble-4k", "pebble-blob", "pebble-4k-blob", "badger-vlog", "goleveldb"}, namesOf(native)...)
	getEngines  = append([]string{ours, ours4, "pebble", "pebble-4k", "badger", "goleveldb", "bbolt"}, namesOf(native)...)
	loadEngines = append([]string{ours, ours4, "pebble", "badger", "goleveldb"}, namesOf(native)...)
	scanEngines = append([]string{ours, ours4, ours16, "pebble", "pebble-4k", "badger", "goleveldb", "bbolt"}, namesOf(native)...)
)

func (p *plan) contests() (all []*contest) {
	for _, size := range putSizes {
		all = append(all, putContest(&p.put, size, putWriters))
	}
	for i, mix := range workload.Mixes {
		for _, n := range mixThreads {
			if p.fewMixes && i > 1 && n != mixThreads[0] {
				continue
			}
			all = append(all, mixContest(&p.mix, mix, mixValueBytes, n))
		}
	}
	var all4 []*read
	for i := range reads {
		all4 = append(all4, &reads[i])
	}
	all = append(all,
		loadContest(&p.load, readValueBytes, false), loadContest(&p.single, readValueBytes, true),
		getContest(&p.get, all4, readValueBytes, readThreads),
		transactionContest(&p.txn, false), transactionContest(&p.txn, true), scanMixContest(&p.scanMix),
		coldContest(&p.coldUniform, coldUniform), coldContest(&p.coldZipf, coldZipf))
	if !p.withTime {
		return all
	}
	for _, mix := range crossMixes {
		all = append(all, crossContest(&p.cross, mix))
	}
	for _, run := range longRuns {
		all = append(all, run.contest(p))
	}
	return all
}

func scanCell(s shape, loose bool) string {
	if loose {
		return "scan " + string(s) + ", not settled"
	}
	return "scan " + string(s)
}

// scanSlots compares scans and returns the results in the form of runs.
func scanSlots(ctx context.Context, a *arena, o *scanOptions) (slots []slot, err error) {
	var processes []*engineWorker
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, a.dismiss(p))
		}
	}()
	for _, name := range o.engines {
		p, err := startLoaded(ctx, o, name, a.dir, a.progress)
		if p != nil {
			processes = append(processes, p)
		}
		if err != nil {
			return nil, err
		}
	}
	rounds, err := measureScans(o, processes, a.progress)
	if err != nil {
		return nil, err
	}
	for _, shape := range o.shapes() {
		for n, r := range rounds[1:] {
			for i, p := range processes {
				s := slot{Cell: scanCell(shape, o.loose), Engine: p.name, Round: n, Budget: o.memory << 20, Run: scanOutcome(r, shape, i, o)}
				if err := a.report(s); err != nil {
					return nil, err
				}
				slots = append(slots, s)
			}
		}
	}
	return slots, nil
}

func scanOutcome(r round, s shape, i int, o *scanOptions) outcome {
	return outcome{
		Summary: workload.Summary{
			Seconds:        r[s][i].Elapsed.Seconds(),
			Ops:            uint64(r[s][i].units(s, o)),
			OpsPerSecond:   r.rate(s, i, o),
			CPUMicrosPerOp: r.cost(s, i, o) * 1e6,
		},
		Memory: r[s][i].Memory,
	}
}
