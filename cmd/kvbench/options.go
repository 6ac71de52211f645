package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/workload"
)

// options is the command line of run. The embedded ones shape an engine in this
// process, and mean nothing for a server.
type options struct {
	mix          string
	distribution string
	durability   string
	config       workload.Config

	data string
	addr string
	out  string

	partitions int
	flushKeys  int
	memory     byteSize
	batchOps   int
	linger     time.Duration

	level kv.Durability // durability, parsed
}

var embeddedFlags = []string{"partitions", "flush-keys", "memory", "batch-ops", "linger"}

func (o *options) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.mix, "mix", "PUT_HEAVY", "operations: PUT_HEAVY, GET_HEAVY, DELETE_HEAVY or BALANCED")
	f.IntVar(&o.config.Workers, "threads", 16, "workers, each with one operation at a time")
	f.Uint64Var(&o.config.Keys, "keys", 10_000_000, "size of the key space")
	f.IntVar(&o.config.ValueBytes, "value-size", 1024, "bytes of a value")
	f.Float64Var(&o.config.FindRate, "find-rate", 0.5, "share of gets and deletes that ask for a key known to be there")
	f.StringVar(&o.distribution, "distribution", string(workload.Uniform),
		"of keys: uniform, sequential, zipfian, scrambled-zipfian, latest or hotspot")
	f.Uint64Var(&o.config.Seed, "seed", 1, "equal seeds draw equal operations")
	f.Uint64Var(&o.config.Preload, "preload", 0, "keys to put before the measurement")
	f.Uint64Var(&o.config.OpsPerSecond, "rps", 0, "operations a second in an open loop; 0 is the closed loop")
	f.BoolVar(&o.config.CheckDeletes, "check-deletes", false, "get before each delete, to report how many found something")
	f.DurationVar(&o.config.Warmup, "warmup", 0, "run this long before the measurement")
	f.DurationVar(&o.config.Duration, "duration", time.Minute, "of the measurement")
	f.DurationVar(&o.config.Interval, "interval", 10*time.Second, "between two lines of --out, in whole seconds")
	f.StringVar(&o.durability, "durability", kv.DurabilityBuffered.String(), "of writes: memory, buffered or sync")

	f.StringVar(&o.data, "data", "", "run the engine in this process, on this directory (default a new one here, removed afterwards)")
	f.StringVar(&o.addr, "addr", "", "ask the server at HOST:PORT instead")
	f.StringVar(&o.out, "out", "", "append the report to this file, as lines of JSON")

	f.IntVar(&o.partitions, "partitions", 4, "embedded: partitions of a new store")
	f.IntVar(&o.flushKeys, "flush-keys", 0, "embedded: flush a memtable at this many keys; 0 is by memory alone")
	f.Var(&o.memory, "memory", "embedded: what the process may take, such as 1GiB: memtables and block cache get a quarter each; 0 is the engine's defaults")
	f.IntVar(&o.batchOps, "batch-ops", 0, "embedded: most keys of a micro-batch; 0 is the engine's default")
	f.DurationVar(&o.linger, "linger", 0, "embedded: how long a micro-batch waits for more keys")
}

// resolve reads the words among the flags and reports everything that is wrong
// with them.
func (o *options) resolve(c *cobra.Command) error {
	var errs [3]error
	o.config.Mix, errs[0] = workload.ParseMix(o.mix)
	o.config.Distribution, errs[1] = workload.ParseDistribution(o.distribution)
	o.level, errs[2] = kv.ParseDurability(o.durability)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if o.level == kv.DurabilityDefault {
		return errors.New("--durability default: a report says what it measured; choose memory, buffered or sync")
	}
	if err := o.config.Validate(); err != nil {
		return err
	}
	if o.addr == "" {
		return o.checkEmbedded()
	}
	if o.data != "" {
		return errors.New("--data and --addr exclude each other: run the engine here, or ask a server")
	}
	for _, name := range embeddedFlags {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s shapes an engine in this process; with --addr it is the server's to choose", name)
		}
	}
	return nil
}

func (o *options) checkEmbedded() error {
	switch {
	case o.partitions < 1:
		return fmt.Errorf("--partitions %d: want at least 1", o.partitions)
	case o.flushKeys < 0 || o.batchOps < 0 || o.linger < 0:
		return errors.New("--flush-keys, --batch-ops and --linger: want 0 or more")
	}
	return nil
}
