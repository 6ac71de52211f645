package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/wal"
)

// PartitionStats counts what one partition has done: its tree, and its writes.
type PartitionStats struct {
	partition.Stats
	commit.WriteStats
}

// Stats counts what the store has done since it was opened, and tells what it holds now.
// The fields are read one after the other, not at one instant.
type Stats struct {
	Partitions []PartitionStats
	Log        wal.Stats // of a member of a cluster: of its part of the replicated log
	Cache      sstable.CacheStats

	Conflicts  uint64 // commits refused because what they had read was written since
	Duplicates uint64 // writes whose request id was known, so that they were not applied again

	Visible       kv.SeqNum
	Clock         uint64        // the store's clock, Unix milliseconds
	Snapshots     int           // under lease
	Pins          int           // versions that snapshots, scans and reads hold
	PinAge        time.Duration // of the oldest
	Scrubs        ScrubStats
	Checkpoints   int                   // open
	CheckpointAge time.Duration         // of the oldest; it keeps files that compaction has replaced
	Archive       *backup.ArchiveStatus // nil: the log is not archived
	MemtableBytes int64                 // active and sealed, as the budget counts them
	MemtableLimit int64
	Shed          uint64 // writes refused because memtables were full
	Pressure      float64
	ReadOnly      bool
	DiskFree      uint64
}

// Stats returns the store's counters and sizes.
func (e *Engine) Stats() Stats {
	defer e.events.Guard()
	s := Stats{
		Cache:   e.cache.Stats(),
		Visible: e.sequencer.Visible(), Clock: e.now(), Snapshots: e.snapshots.count(),
		MemtableBytes: e.budget.used(), MemtableLimit: e.budget.limit,
		Shed: e.budget.sheds.Load(), Pressure: e.budget.pressure(),
		ReadOnly: e.readOnly.Load(), DiskFree: e.disk.free.Load(),
	}
	switch {
	case e.log != nil:
		s.Log = e.log.Stats()
	case e.member != nil:
		s.Log = e.member.log.Stats()
	}
	if e.archiver != nil {
		archive := e.archiver.Status()
		s.Archive = &archive
	}
	s.Scrubs = e.scrubs.read()
	s.Pins, s.PinAge = e.sequencer.pinned()
	s.Checkpoints, s.CheckpointAge = e.checkpoints.oldest()
	for i, p := range e.partitions {
		c := e.own.coordinatorOf(e.member, i)
		stats := PartitionStats{p.Stats(), c.Stats()}
		s.Conflicts += stats.Conflicts
		s.Duplicates += stats.Duplicates
		s.Partitions = append(s.Partitions, stats)
	}
	return s
}

// DiskBytes returns the bytes of all tables, value files and the log.
func (s *Stats) DiskBytes() uint64 {
	sum := uint64(max(s.Log.LiveBytes, 0))
	for i := range s.Partitions {
		sum += s.Partitions[i].DeltaBytes + s.Partitions[i].BaseBytes + s.Partitions[i].ValueBytes
	}
	return sum
}
