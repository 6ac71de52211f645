package engine

import (
	"fmt"
	"math/bits"
	"runtime"
	"time"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Options of a store. The zero value of every field is its default.
type Options struct {
	// FS is the file system of the store; default that of the operating system.
	FS vfs.FS
	// Partitions is fixed when the store is created; see DefaultPartitions. For an existing
	// store, zero means the number that it has, and any other number must equal it.
	Partitions int
	// ReadOnly opens an existing store without changing any file; other processes may
	// open it in the same way. What the log holds is kept in memory. Writes fail with
	// kv.ErrReadOnly.
	ReadOnly bool
	// AllowDamaged opens a store of which tables or value files are missing, cut or otherwise
	// cannot be opened: reads of their keys fail, everything else is served. Damage to STORE,
	// CLOCK, a manifest or the log makes Open fail all the same.
	AllowDamaged bool
	// Durability is the one of writes that do not choose; default sync.
	Durability kv.Durability
	// MemtableBytes bounds the memtables of all partitions together; default 128
	// MiB. Writers are slowed from three quarters of it on, with 16 partitions or more from seven eighths on.
	MemtableBytes int64
	// CacheBytes bounds the cache of blocks and separated values; default 128 MiB.
	CacheBytes int64
	// SegmentBytes is the size of a log segment; default 64 MiB, or 1/64 of a disk that is
	// smaller than 4 GiB.
	SegmentBytes int64
	// Writes and Reads shape the micro-batches of a partition.
	Writes, Reads batcher.Policy
	// FlushKeys seals a memtable at this many entries; default no such bound. The
	// benchmark of the design's source measures its threshold in entries.
	FlushKeys int
	// LowDiskBytes is the free space below which the store is read-only; default 64 MiB.
	LowDiskBytes uint64
	// ValueThreshold is the size in bytes from which on values are stored apart from
	// their keys, in value files, which compactions rarely rewrite; default 256. A number
	// larger than any value keeps all values with their keys. It may differ between
	// openings.
	ValueThreshold int
	// Archive says where the commit log is archived.
	Archive ArchiveOptions
	// ScrubInterval is how long a pass of the background scrub takes at most, unless the
	// store is too large for maxScrubRate; default no background scrub.
	ScrubInterval time.Duration
	// CompareInterval is how long after one comparison of the states of all members of a cluster
	// the next begins; default none. It counts on the member that leads; a member without it takes
	// no part.
	CompareInterval time.Duration
	// Replicated makes the store a member of a cluster: this log takes the place of the
	// node's own. The store owns it from Open on. Default none.
	Replicated ReplicatedLog
	// Events listens to what happens in the store; default no listener.
	Events *event.Listener

	// The remaining fields have their defaults in every store that is used. Tests of this
	// package set them, to reach a bound with little data or in little time.

	time timeSource // of the clock
	// workers is how many flushes and compactions run at a time; default one more than
	// half the processors. One of them only flushes.
	workers int
	// logBytes is the size of the log above which the partition with the oldest unflushed
	// write is flushed early; default four segments plus twice MemtableBytes. It bounds
	// the time that recovery takes.
	logBytes int64
	// maxSnapshots is how many snapshots may have a lease at a time; default 1,024.
	maxSnapshots int
	// maxLease is the longest lease of a snapshot before it must be renewed; default one
	// minute.
	maxLease time.Duration
	// maxSnapshotAge is how long a version is kept for a reader, however often the
	// lease is renewed, and how long a scan may take; default ten minutes.
	maxSnapshotAge time.Duration
	// requestIDs is how many of the newest request ids of writes the partitions together remember,
	// to recognise retries; default 262,144. They take 10 MiB if few clients write, 50 MiB if each
	// client writes once, and at most twice as much when writes begin to go to other partitions: see
	// commit.RequestWindow.
	requestIDs int
	// limits of keys, values and batches; default kv.DefaultLimits.
	limits kv.Limits
	// tableBytes is the size at which tables are cut; default that of package compaction.
	tableBytes int64
	// table and compaction shape files; the zero values are their defaults.
	table      sstable.WriterOptions
	compaction compaction.Policy
}

// DefaultValueThreshold is the default of Options.ValueThreshold. Measured with
// BenchmarkValuesApart: at this size reads and scans are no slower than with values beside
// their keys, and a put-heavy load writes about half as much (see bench/NOTES.md).
const DefaultValueThreshold = 256

// DefaultPartitions returns how many partitions a new store gets: two for each processor
// that Go uses (GOMAXPROCS), rounded up to a power of two, from 4 to 64. More partitions let
// more goroutines apply writes at the same time; but each takes its share of every scan, of
// the memtables and of every micro-batch, so that too many cost more than they bring (see
// bench/NOTES.md).
func DefaultPartitions() int { return defaultPartitions(runtime.GOMAXPROCS(0)) }

func defaultPartitions(processors int) int {
	return min(max(1<<bits.Len(uint(2*processors-1)), 4), 64)
}

// withDefaults fills in the defaults of zero fields, and refuses invalid options.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.MemtableBytes, 128<<20)
	setDefault(&o.CacheBytes, 128<<20)
	setDefault(&o.SegmentBytes, 64<<20)
	setDefault(&o.logBytes, o.defaultLogBytes())
	setDefault(&o.workers, 1+(runtime.GOMAXPROCS(0)+1)/2)
	setDefault(&o.LowDiskBytes, 64<<20)
	setDefault(&o.requestIDs, 1<<18)
	setDefault(&o.ValueThreshold, DefaultValueThreshold)
	setDefault(&o.maxSnapshots, 1024)
	setDefault(&o.maxLease, time.Minute)
	setDefault(&o.maxSnapshotAge, 10*time.Minute)
	o.Archive.setDefaults()
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.time.wall == nil {
		boot, err := systemBoot(o.FS)
		if err != nil {
			return o, err
		}
		o.time = systemTime(boot)
	}
	if o.Durability == kv.DurabilityDefault {
		o.Durability = kv.DurabilitySync
	}
	if o.limits == (kv.Limits{}) {
		o.limits = kv.DefaultLimits
	}
	if err := o.limits.Validate(); err != nil {
		return o, err
	}
	switch {
	case !o.Durability.Valid():
		return o, fmt.Errorf("%w: durability %d", kv.ErrInvalidArgument, o.Durability)
	case o.Partitions < 0 || o.Partitions > descriptor.MaxPartitions:
		return o, fmt.Errorf("%w: %d partitions, want 1 to %d", kv.ErrInvalidArgument, o.Partitions, descriptor.MaxPartitions)
	case o.MemtableBytes < 64<<10:
		return o, fmt.Errorf("%w: %d bytes for memtables, want at least 64 KiB", kv.ErrInvalidArgument, o.MemtableBytes)
	case o.Replicated != nil && (o.ReadOnly || o.Archive.Dir != ""):
		return o, fmt.Errorf("%w: a member of a cluster can neither be opened read-only nor archive its log: see package replicated", kv.ErrInvalidArgument)
	case o.ValueThreshold < 0:
		return o, fmt.Errorf("%w: value threshold of %d bytes, want at least 0", kv.ErrInvalidArgument, o.ValueThreshold)
	}
	return o, nil
}

// defaultLogBytes is the default of logBytes.
func (o *Options) defaultLogBytes() int64 { return 4*o.SegmentBytes + 2*o.MemtableBytes }

func setDefault[T int | int64 | uint64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Shares splits the memory that a process may use: a quarter for memtables and a quarter
// for the block cache. The rest is for requests in progress, filters and indexes, and the
// garbage collector. With debug.SetMemoryLimit(memory) the process stays within a quarter
// more.
func Shares(memory int64) (memtableBytes, cacheBytes int64) { return memory / 4, memory / 4 }

// share returns how many bytes one partition may have queued, and how many it may have in
// the log but not yet in its memtable: for all partitions together a sixteenth of
// MemtableBytes, but for each at least a batch.
func (o *Options) share(partitions int) int64 {
	return max(o.MemtableBytes/int64(16*partitions), 1<<bits.Len(uint(batcher.DefaultMaxBytes-1)))
}

// housekeepingEvery is the interval of the maintenance loop.
const housekeepingEvery = time.Second
