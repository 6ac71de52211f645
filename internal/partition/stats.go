package partition

import (
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/histogram"
)

// counters are the running counts of a partition.
type counters struct {
	reads histogram.Powers // keys of each micro-batch

	userBytes      atomic.Uint64
	flushes        atomic.Uint64
	flushedBytes   atomic.Uint64
	compactions    atomic.Uint64
	compactedBytes atomic.Uint64
	movedBytes     atomic.Uint64
	corruptions    atomic.Uint64
}

// Stats counts what a partition has done since it was opened, and tells what it holds now.
// The fields are read one after the other, not at one instant.
type Stats struct {
	Reads histogram.PowerCounts // keys of each read micro-batch

	// How long the first of a micro-batch waited until it was taken, in microseconds: see
	// batcher.SampleEvery. Reads that memory answers before they get into one do not count.
	ReadWaits histogram.PowerCounts

	UserBytes      uint64 // keys and values inserted
	Flushes        uint64
	FlushedBytes   uint64 // written by flushes
	Compactions    uint64
	CompactedBytes uint64 // written by compactions
	MovedBytes     uint64 // of these, values out of value files that had too much garbage
	Corruptions    uint64

	ActiveBytes  int64 // memtables
	SealedBytes  int64
	SealedTables int

	Deltas      int
	DeltaTables int
	DeltaBytes  uint64
	BaseTables  int
	BaseBytes   uint64
	ValueFiles  int
	ValueBytes  uint64 // of the value files
	Garbage     uint64 // bytes of values in them that nothing needs any more
	Entries     uint64 // versions in all tables
	Debt        uint64 // bytes that compactions will have to read
}

// UserBytes returns the bytes of keys and values inserted since the partition was
// opened.
func (p *Partition) UserBytes() uint64 { return p.stats.userBytes.Load() }

// Stats returns the partition's counters and sizes.
func (p *Partition) Stats() Stats {
	s := p.acquire()
	defer s.release()
	c := &p.stats
	out := Stats{
		Reads: c.reads.Counts(), ReadWaits: p.reads.Waits(),
		UserBytes: c.userBytes.Load(), Flushes: c.flushes.Load(), FlushedBytes: c.flushedBytes.Load(),
		Compactions: c.compactions.Load(), CompactedBytes: c.compactedBytes.Load(),
		MovedBytes: c.movedBytes.Load(), Corruptions: c.corruptions.Load(),
		ActiveBytes: s.active.Bytes(), SealedTables: len(s.sealed),
		Entries: s.levels.version.Entries(), Deltas: len(s.levels.deltas),
		DeltaBytes: s.levels.version.DeltaBytes(),
		BaseTables: len(s.levels.base.metas), BaseBytes: s.levels.version.Base.Bytes(),
		ValueFiles: len(s.levels.version.Values), ValueBytes: s.levels.version.ValueFileBytes(),
		Debt: compaction.Debt(s.levels.version.Version, p.opts.Compaction),
	}
	_, out.Garbage = s.levels.version.ValueBytes()
	for i := range s.sealed {
		out.SealedBytes += s.sealed[i].bytes
	}
	for i := range s.levels.deltas {
		out.DeltaTables += len(s.levels.deltas[i].metas)
	}
	return out
}
