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
	// FS is where the store lives; default the operating system's.
	FS vfs.FS
	// Partitions is fixed when the store is created, default 16. For an existing
	// store zero takes what is there, and any other number must agree with it.
	Partitions int
	// ReadOnly opens a store that is there without changing a file, and so that others
	// may have it open likewise: what the log holds stays in memory. Writes are
	// kv.ErrReadOnly.
	ReadOnly bool
	// Durability of writes that do not choose; default sync.
	Durability kv.Durability
	// MemtableBytes bounds the memtables of all partitions together; default 128
	// MiB. Writers are slowed from three quarters of it on.
	MemtableBytes int64
	// CacheBytes bounds the block cache; default 128 MiB.
	CacheBytes int64
	// LogBytes is how much log may pile up before the partition that holds it
	// back is flushed early; default four segments and twice the memtables.
	// It bounds the time that recovery takes.
	LogBytes int64
	// SegmentBytes is the size of a log segment; default 64 MiB, or one part in 64 of a
	// disk that is smaller than 4 GiB.
	SegmentBytes int64
	// Writes and Reads shape the micro-batches of a partition.
	Writes, Reads batcher.Policy
	// FlushAge is for how long a memtable may hold writes and get no more until it is
	// flushed; a third of it if some are deletes; and, while it gets more, 20 times as
	// long, with deletes twice as long. Default 30 seconds.
	FlushAge time.Duration
	// FlushKeys seals a memtable at this many entries; default no such bound. The
	// benchmark of the design's source measures its threshold so.
	FlushKeys int
	// Workers is how many flushes and compactions run at a time; default one more
	// than half the processors. One of them only flushes.
	Workers int
	// LowDiskBytes of free space make the store read-only until there is more;
	// default 64 MiB.
	LowDiskBytes uint64
	// MaxSnapshots is how many snapshots may be under lease; default 1,024.
	MaxSnapshots int
	// MaxLease is the longest lease of a snapshot, until it is renewed; default a
	// minute.
	MaxLease time.Duration
	// MaxSnapshotAge is how long a version is kept for a reader, however often the
	// lease is renewed, and how long a scan may take; default ten minutes.
	MaxSnapshotAge time.Duration
	// Names is how many named writes the partitions together remember, to recognise
	// one that is sent again; default 262,144, which takes some 30 MiB when full.
	Names int
	// Limits of keys, values and batches; default kv.DefaultLimits.
	Limits kv.Limits
	// TableBytes is where tables are cut; default 32 MiB.
	TableBytes int64
	// ValueThreshold: values of at least so many bytes are kept apart from their keys, in
	// value files, and compactions rarely write them again; default 256. More than any
	// value has keeps all beside their keys. It may change from one opening to the next.
	ValueThreshold int
	// Table and Compaction shape files; the zero values are their defaults.
	Table      sstable.WriterOptions
	Compaction compaction.Policy
	// Events is told what happens; default nobody.
	Events *event.Listener

	time timeSource // of the clock; tests have their own
}

// DefaultValueThreshold is from how many bytes on values are kept apart. Measured with
// BenchmarkValuesApart and a block cache for a tenth of the values: at 256 bytes reads
// and scans are no slower than with values beside their keys, and a put-heavy load
// writes about half. A cache that holds everything would serve smaller values faster.
const DefaultValueThreshold = 256

// DefaultPartitions is how many partitions a new store gets.
const DefaultPartitions = 16

// withDefaults fills in what was left zero and reports what makes no sense.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.MemtableBytes, 128<<20)
	setDefault(&o.CacheBytes, 128<<20)
	setDefault(&o.SegmentBytes, 64<<20)
	setDefault(&o.LogBytes, o.logBytes())
	setDefault(&o.Workers, 1+(runtime.GOMAXPROCS(0)+1)/2)
	setDefault(&o.LowDiskBytes, 64<<20)
	setDefault(&o.Names, 1<<18)
	setDefault(&o.ValueThreshold, DefaultValueThreshold)
	setDefault(&o.FlushAge, 30*time.Second)
	setDefault(&o.MaxSnapshots, 1024)
	setDefault(&o.MaxLease, time.Minute)
	setDefault(&o.MaxSnapshotAge, 10*time.Minute)
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
	if o.Limits == (kv.Limits{}) {
		o.Limits = kv.DefaultLimits
	}
	if err := o.Limits.Validate(); err != nil {
		return o, err
	}
	switch {
	case !o.Durability.Valid():
		return o, fmt.Errorf("%w: durability %d", kv.ErrInvalidArgument, o.Durability)
	case o.Partitions < 0 || o.Partitions > descriptor.MaxPartitions:
		return o, fmt.Errorf("%w: %d partitions, want 1 to %d", kv.ErrInvalidArgument, o.Partitions, descriptor.MaxPartitions)
	case o.MemtableBytes < 64<<10:
		return o, fmt.Errorf("%w: %d bytes for memtables, want at least 64 KiB", kv.ErrInvalidArgument, o.MemtableBytes)
	case o.ValueThreshold < 0:
		return o, fmt.Errorf("%w: values of at least %d bytes kept apart", kv.ErrInvalidArgument, o.ValueThreshold)
	case o.Workers < 2:
		return o, fmt.Errorf("%w: %d workers, want at least 2: one only flushes", kv.ErrInvalidArgument, o.Workers)
	case o.FlushAge < 0:
		return o, fmt.Errorf("%w: memtables flushed after %v", kv.ErrInvalidArgument, o.FlushAge)
	case o.MaxSnapshots < 0 || o.MaxLease < 0 || o.MaxSnapshotAge < 0:
		return o, fmt.Errorf("%w: %d snapshots of at most %v, leased for %v", kv.ErrInvalidArgument,
			o.MaxSnapshots, o.MaxSnapshotAge, o.MaxLease)
	}
	return o, nil
}

// logBytes is the default of LogBytes.
func (o *Options) logBytes() int64 { return 4*o.SegmentBytes + 2*o.MemtableBytes }

func setDefault[T int | int64 | uint64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Shares splits what a process may take in memory: a quarter for memtables and a
// quarter for the block cache. The rest serves requests in progress, filters and
// indexes, and what the garbage collector needs to breathe; with a memory limit
// of the whole (debug.SetMemoryLimit) the process stays within a quarter more.
func Shares(memory int64) (memtableBytes, cacheBytes int64) { return memory / 4, memory / 4 }

// share returns what one partition may have queued, and likewise have in the log
// but not in its memtable yet: a sixteenth of the memtables over all partitions,
// but never less than a batch.
func (o *Options) share(partitions int) int64 {
	return max(o.MemtableBytes/int64(16*partitions), 1<<bits.Len(uint(batcher.DefaultMaxBytes-1)))
}

// housekeepingEvery is the pause between looks at the disk and the log.
const housekeepingEvery = time.Second
