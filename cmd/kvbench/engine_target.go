package main

import (
	"context"
	"runtime/debug"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// engineTarget is a store in this process. Operations go through the embedded store, as
// those of a program would; the engine tells what it did.
type engineTarget struct {
	storeTarget
	engine *engine.Engine
	before engineCounters // at the beginning of the measurement, or of the opening if there was none
}

// leastMemoryLimit keeps a tiny --memory, which makes memtables tiny, from making
// the garbage collector run all the time: the generator lives here too.
const leastMemoryLimit = 64 << 20

func openEngine(o *targetOptions) (workload.Target, targetInfo, error) {
	writes := batcher.Policy{MaxOps: o.batchOps, Linger: o.linger}
	reads := writes
	if r := o.reads; r != nil && !o.server {
		reads = batcher.Policy{Alone: r.Alone, MaxOps: r.Size, Linger: r.Linger, Runners: r.Runners}
	}
	memtables, cache := engine.Shares(int64(o.memory))
	if o.cacheBytes > 0 {
		cache = o.cacheBytes
	}
	if o.memtableBytes > 0 {
		memtables = o.memtableBytes
	}
	files := vfs.OS
	if o.fileReads != nil {
		files = vfs.CountReads(files, o.fileReads)
	}
	if o.readLatency > 0 {
		files = vfs.SlowReads(files, o.readLatency, o.readDepth)
	}
	if o.memory > 0 {
		debug.SetMemoryLimit(max(int64(o.memory), leastMemoryLimit))
	}
	var before engineCounters
	before.diskRead, before.diskWritten = loadgen.DiskTraffic()
	e, err := engine.Open(o.data, engine.Options{
		FS:             files,
		Partitions:     o.partitions,
		Durability:     o.level,
		MemtableBytes:  memtables,
		CacheBytes:     cache,
		FlushKeys:      o.flushKeys,
		SegmentBytes:   o.segmentBytes,
		ValueThreshold: o.valueThreshold,
		Writes:         writes,
		Reads:          reads,
	})
	if err != nil {
		return nil, targetInfo{}, err
	}
	return &engineTarget{storeTarget: storeTarget{store: embed.Over(e)}, engine: e, before: before}, targetInfo{
		Kind:        "engine",
		Durability:  o.level.String(),
		Partitions:  e.Descriptor().Partitions,
		FlushKeys:   o.flushKeys,
		Threshold:   o.valueThreshold,
		MemoryBytes: int64(o.memory),
		CacheBytes:  o.cacheBytes,
		BatchOps:    o.batchOps,
		Linger:      o.linger,
		ReadLatency: o.readLatency,
		ReadDepth:   o.readDepth,
	}, nil
}

// Put waits for as long as the store takes, as do Delete and Get: a program that embeds a
// store without deadlines, for which the store goes the shortest way.
func (t *engineTarget) Put(_ context.Context, key, value []byte) error {
	return t.storeTarget.Put(context.Background(), key, value)
}

func (t *engineTarget) Delete(_ context.Context, key []byte) error {
	return t.storeTarget.Delete(context.Background(), key)
}

func (t *engineTarget) Get(_ context.Context, key, buf []byte) ([]byte, bool, error) {
	return t.storeTarget.Get(context.Background(), key, buf)
}

func (t *engineTarget) DiskBytes() (int64, error) {
	stats := t.engine.Stats()
	return int64(stats.DiskBytes()), nil
}

// settle flushes and merges everything that was put.
func (t *engineTarget) settle(ctx context.Context) error { return t.engine.CompactAll(ctx) }

// begin implements staged.
func (t *engineTarget) begin() {
	t.storeTarget.begin()
	t.before = t.counters()
}

// engineCounters only grow.
type engineCounters struct {
	writeBatches, writes, readBatches, reads  uint64
	logSyncs, logBytes, logRecords, logFrames uint64
	userBytes, flushed, compacted, moved      uint64
	diskRead, diskWritten                     uint64

	writeSizes, readSizes histogram.PowerCounts // of micro-batches
}

func (t *engineTarget) counters() engineCounters {
	s := t.engine.Stats()
	c := engineCounters{logSyncs: s.Log.Syncs, logBytes: s.Log.Bytes, logRecords: s.Log.Records, logFrames: s.Log.Frames}
	c.diskRead, c.diskWritten = loadgen.DiskTraffic()
	for i := range s.Partitions {
		p := &s.Partitions[i]
		c.writeBatches, c.writes = c.writeBatches+p.Writes.Count(), c.writes+p.Writes.Sum
		c.readBatches, c.reads = c.readBatches+p.Reads.Count(), c.reads+p.Reads.Sum
		c.writeSizes.Add(&p.Writes)
		c.readSizes.Add(&p.Reads)
		c.userBytes += p.UserBytes
		c.flushed += p.FlushedBytes
		c.compacted += p.CompactedBytes
		c.moved += p.MovedBytes
	}
	return c
}

// activity returns what the engine did since the beginning of the last measurement, or
// since it was opened if there was none.
func (t *engineTarget) activity() *activity {
	now, before := t.counters(), &t.before
	a := &activity{
		OpsPerWriteBatch:   quotient(now.writes-before.writes, now.writeBatches-before.writeBatches),
		OpsPerReadBatch:    quotient(now.reads-before.reads, now.readBatches-before.readBatches),
		RecordsPerLogWrite: quotient(now.logRecords-before.logRecords, now.logFrames-before.logFrames),
		LogSyncs:           now.logSyncs - before.logSyncs,
		LogBytes:           now.logBytes - before.logBytes,
		FlushedBytes:       now.flushed - before.flushed,
		CompactedBytes:     now.compacted - before.compacted,
		MovedBytes:         now.moved - before.moved,
		DiskReadBytes:      now.diskRead - before.diskRead,
		DiskWrittenBytes:   now.diskWritten - before.diskWritten,
		WriteBatches:       sizesSince(&now.writeSizes, &before.writeSizes),
		ReadBatches:        sizesSince(&now.readSizes, &before.readSizes),
	}
	a.WrittenPerUserBytes = quotient(a.LogBytes+a.FlushedBytes+a.CompactedBytes, now.userBytes-before.userBytes)
	s := t.engine.Stats()
	for i := range s.Partitions {
		a.ValueFileBytes += s.Partitions[i].ValueBytes
		a.GarbageBytes += s.Partitions[i].Garbage
	}
	return a
}

// state implements describing.
func (t *engineTarget) state() *results.StoreState {
	s, now := t.engine.Stats(), t.counters()
	state := &results.StoreState{
		Log: uint64(max(s.Log.LiveBytes, 0)), Pressure: s.Pressure, Put: now.userBytes - t.before.userBytes,
		Written: now.logBytes + now.flushed + now.compacted - t.before.logBytes - t.before.flushed - t.before.compacted,
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		state.Deltas, state.Base = state.Deltas+p.DeltaBytes, state.Base+p.BaseBytes
		state.Values, state.Garbage, state.Debt = state.Values+p.ValueBytes, state.Garbage+p.Garbage, state.Debt+p.Debt
	}
	return state
}

// sizesSince returns how many micro-batches had which size, in the form of results.Activity.
func sizesSince(now, before *histogram.PowerCounts) [][2]uint64 {
	var sizes [][2]uint64
	for i, n := range now.Buckets {
		if n -= before.Buckets[i]; n > 0 {
			sizes = append(sizes, [2]uint64{1 << i, n})
		}
	}
	return sizes
}

func quotient(n, by uint64) float64 {
	if by == 0 {
		return 0
	}
	return float64(n) / float64(by)
}
