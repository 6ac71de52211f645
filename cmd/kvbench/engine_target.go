package main

import (
	"context"
	"runtime/debug"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// engineTarget is a store in this process. Operations go through the embedded store, as
// those of a program would; the engine tells what it did.
type engineTarget struct {
	storeTarget
	engine *engine.Engine
}

// leastMemoryLimit keeps a tiny --memory, which makes memtables tiny, from making
// the garbage collector run all the time: the generator lives here too.
const leastMemoryLimit = 64 << 20

func openEngine(o *targetOptions) (workload.Target, targetInfo, error) {
	policy := batcher.Policy{MaxOps: o.batchOps, Linger: o.linger}
	memtables, cache := engine.Shares(int64(o.memory))
	if o.cacheBytes > 0 {
		cache = o.cacheBytes
	}
	files := vfs.OS
	if o.fileReads != nil {
		files = vfs.CountReads(files, o.fileReads)
	}
	if o.memory > 0 {
		debug.SetMemoryLimit(max(int64(o.memory), leastMemoryLimit))
	}
	e, err := engine.Open(o.data, engine.Options{
		FS:             files,
		Partitions:     o.partitions,
		Durability:     o.level,
		MemtableBytes:  memtables,
		CacheBytes:     cache,
		FlushKeys:      o.flushKeys,
		ValueThreshold: o.valueThreshold,
		Writes:         policy,
		Reads:          policy,
	})
	if err != nil {
		return nil, targetInfo{}, err
	}
	return &engineTarget{storeTarget{embed.Over(e)}, e}, targetInfo{
		Kind:        "engine",
		Durability:  o.level.String(),
		Partitions:  e.Descriptor().Partitions,
		FlushKeys:   o.flushKeys,
		Threshold:   o.valueThreshold,
		MemoryBytes: int64(o.memory),
		CacheBytes:  o.cacheBytes,
		BatchOps:    o.batchOps,
		Linger:      o.linger,
	}, nil
}

// Put waits for as long as the store takes, as do Delete and Get: a program that embeds a
// store without deadlines, for which the store goes the shortest way.
func (t *engineTarget) Put(_ context.Context, key, value []byte) error {
	return t.store.Put(context.Background(), key, value)
}

func (t *engineTarget) Delete(_ context.Context, key []byte) error {
	return t.store.Delete(context.Background(), key)
}

func (t *engineTarget) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	return found(t.store.Get(context.Background(), key))
}

func (t *engineTarget) DiskBytes() (int64, error) {
	stats := t.engine.Stats()
	return int64(stats.DiskBytes()), nil
}

// settle flushes and merges everything that was put.
func (t *engineTarget) settle(ctx context.Context) error { return t.engine.CompactAll(ctx) }

func (t *engineTarget) activity() *activity {
	s := t.engine.Stats()
	var batches, batchOps, readBatches, reads, userBytes uint64
	a := &activity{LogSyncs: s.Log.Syncs, LogBytes: s.Log.Bytes}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		batches, batchOps = batches+p.Writes.Count(), batchOps+p.Writes.Sum
		readBatches, reads = readBatches+p.Reads.Count(), reads+p.Reads.Sum
		userBytes += p.UserBytes
		a.FlushedBytes += p.FlushedBytes
		a.CompactedBytes += p.CompactedBytes
		a.MovedBytes += p.MovedBytes
		a.ValueFileBytes += p.ValueBytes
		a.GarbageBytes += p.Garbage
	}
	a.OpsPerWriteBatch = quotient(batchOps, batches)
	a.OpsPerReadBatch = quotient(reads, readBatches)
	a.RecordsPerLogWrite = quotient(s.Log.Records, s.Log.Frames)
	a.WrittenPerUserBytes = quotient(a.LogBytes+a.FlushedBytes+a.CompactedBytes, userBytes)
	return a
}

func quotient(n, by uint64) float64 {
	if by == 0 {
		return 0
	}
	return float64(n) / float64(by)
}
