package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// targetOptions choose the target of the load and the file of the report. The embedded ones
// configure a store in this process, and do not apply to a server.
type targetOptions struct {
	data       string
	addr       string
	admin      string // of the server at addr; "": its metrics are not read
	reuse      bool
	out        string
	durability string

	partitions int
	flushKeys  int
	memory     byteSize
	batchOps   int
	linger     time.Duration

	valueThreshold int

	// Of experiments, which have no flags for these.
	reads         *experiment.ReadBatching // nil: as batchOps and linger say
	readLatency   time.Duration
	readDepth     int
	server        bool            // a server in this process, and a client of it
	cacheBytes    int64           // 0: the share of memory
	memtableBytes int64           // 0: the share of memory
	segmentBytes  int64           // of the log; 0: the engine's default
	fileReads     *vfs.ReadCounts // nil: not counted

	level kv.Durability // durability, parsed
}

var embeddedFlags = []string{"partitions", "flush-keys", "value-threshold", "memory", "batch-ops", "linger"}

func (o *targetOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.durability, "durability", kv.DurabilityBuffered.String(), "durability of writes: memory, buffered or sync")

	f.StringVar(&o.data, "data", "", "run the store in this process, in this directory (default a new one here, removed afterwards)")
	f.StringVar(&o.addr, "addr", "", "measure the server at HOST:PORT or unix:PATH, in place of a store in this process")
	f.StringVar(&o.admin, "admin", "", "with --addr: the admin address of that server, HOST:PORT or unix:PATH; its metrics then say how much processor time it used, and what its store did")
	f.BoolVar(&o.reuse, "reuse", false, "with --data or --addr: run on a store that holds keys already, and change them")
	f.StringVar(&o.out, "out", "", "append to this file lines of JSON: one for each --interval, and a summary of each measurement")

	f.IntVar(&o.partitions, "partitions", 4, "embedded: partitions of a new store")
	f.IntVar(&o.flushKeys, "flush-keys", 0, "embedded: flush a memtable at this many keys; 0 means no such limit")
	f.IntVar(&o.valueThreshold, "value-threshold", 0, "embedded: store values of at least this many bytes apart from their keys; 0 means the engine's default")
	f.Var(&o.memory, "memory", "embedded: memory of the process, such as 1GiB, of which memtables and block cache get a quarter each; 0 means the engine's defaults")
	f.IntVar(&o.batchOps, "batch-ops", 0, "embedded: most keys of a micro-batch; 0 means the engine's default")
	f.DurationVar(&o.linger, "linger", 0, "embedded: how long a micro-batch waits for more keys")
}

// resolve parses flags that are words, and returns the first error in the flags.
func (o *targetOptions) resolve(c *cobra.Command) error {
	var err error
	if o.level, err = parseLevel(o.durability); err != nil {
		return err
	}
	if o.addr == "" {
		return o.checkEmbedded()
	}
	if o.data != "" {
		return errors.New("--data and --addr exclude each other: run the engine here, or ask a server")
	}
	if err := checkAdmin(o.admin); err != nil {
		return err
	}
	for _, name := range embeddedFlags {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s shapes an engine in this process; with --addr it is the server's to choose", name)
		}
	}
	return nil
}

// checkAdmin checks the address of a server's admin pages; "" is none.
func checkAdmin(address string) error {
	if address == "" || strings.HasPrefix(address, unixPrefix) {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--admin %s: %w: want HOST:PORT or unix:PATH, as kvd serve prints it", address, err)
	}
	return nil
}

func (o *targetOptions) checkEmbedded() error {
	if err := checkPartitions(o.partitions); err != nil {
		return err
	}
	switch {
	case o.flushKeys < 0 || o.valueThreshold < 0:
		return errors.New("--flush-keys and --value-threshold: want 0 or more")
	case o.batchOps < 0 || o.batchOps > kv.MaxBatchOps:
		return fmt.Errorf("--batch-ops %d: want 0 to %d", o.batchOps, kv.MaxBatchOps)
	case o.linger < 0 || o.linger > mostLinger:
		return fmt.Errorf("--linger %v: want 0 to %v", o.linger, mostLinger)
	}
	return nil
}

// idle lists the flags that have no effect beside the others.
func (o *targetOptions) idle() []idleFlags {
	return []idleFlags{
		{o.out == "", []string{"interval"}, "without --out, of which it spaces the lines: leave it out, or pass --out FILE"},
		{o.data == "" && o.addr == "", []string{"reuse"}, "on a new store, which holds no keys: leave it out, or name a store by --data or --addr"},
		{o.addr == "", []string{"admin"}, "without --addr, because the store is in this process: leave it out, or name the server by --addr"},
		{o.batchOps == 1, []string{"linger"}, "with --batch-ops 1, because a micro-batch of one key waits for no others: leave out one of the two"},
	}
}

// mostLinger bounds how long a micro-batch waits, and an artificial latency.
const mostLinger = time.Minute

// parseLevel parses --durability, which must name a level.
func parseLevel(durability string) (kv.Durability, error) {
	level, err := kv.ParseDurability(durability)
	if err == nil && level == kv.DurabilityDefault {
		err = errors.New("--durability default: a report says what it measured; choose memory, buffered or sync")
	}
	return level, err
}
