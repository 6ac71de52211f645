package partition

import (
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/histogram"
)

// counters are what a partition counts as it goes.
type counters struct {
	writes histogram.Powers // operations of each micro-batch
	reads  histogram.Powers // likewise

	conflicts  atomic.Uint64
	duplicates atomic.Uint64
	early      atomic.Uint64

	userBytes      atomic.Uint64
	flushes        atomic.Uint64
	flushedBytes   atomic.Uint64
	compactions    atomic.Uint64
	compactedBytes atomic.Uint64
	movedBytes     atomic.Uint64
	corruptions    atomic.Uint64
}

// Stats is what a partition has done since it was opened, and what it holds now.
// The fields are read one after the other, not at one instant.
type Stats struct {
	Writes histogram.PowerCounts // operations of each write micro-batch
	Reads  histogram.PowerCounts // keys of each read micro-batch

	// How long the first of a micro-batch waited until it was taken, in microseconds: see
	// batcher.SampleEvery. Reads that memory answers before they get into one do not count.
	WriteWaits histogram.PowerCounts
	ReadWaits  histogram.PowerCounts

	Conflicts  uint64 // proposals refused because something they read had changed
	Duplicates uint64 // named writes that were applied before and not again
	Early      uint64 // records acknowledged before a stronger one that precedes them in the log

	UserBytes      uint64 // keys and values inserted
	Flushes        uint64
	FlushedBytes   uint64 // written by flushes
	Compactions    uint64
	CompactedBytes uint64 // written by compactions
	MovedBytes     uint64 // of these, values out of value files that had too much garbage
	Corruptions    uint64

	QueueOps, QueueBytes int   // waiting in the inbox
	ActiveBytes          int64 // memtables
	SealedBytes          int64
	SealedTables         int

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
		Writes: c.writes.Counts(), Reads: c.reads.Counts(),
		WriteWaits: p.inbox.Waits(), ReadWaits: p.reads.Waits(),
		Conflicts: c.conflicts.Load(), Duplicates: c.duplicates.Load(), Early: c.early.Load(),
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
	out.QueueOps, out.QueueBytes = p.inbox.Len()
	return out
}
