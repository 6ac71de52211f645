package replicated

import (
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/wal"
)

// Stats implements engine.ReplicatedLog. A frame is a write to the log, a record an entry; the
// time of a sync includes that of the write before it.
func (l *Log) Stats() wal.Stats {
	s := l.file.Stats()
	return wal.Stats{
		Records: s.WriteEntries.Sum, Frames: s.WriteBytes.Count(), Bytes: s.WriteBytes.Sum,
		FrameRecords: s.WriteEntries, FrameBytes: s.WriteBytes,
		Syncs: s.SyncMicros.Count(), SyncTime: s.SyncTime, SyncMax: s.SyncMax, SyncMicros: s.SyncMicros,
		Segments: s.Segments, LiveBytes: s.LiveBytes,
	}
}

// Counts says what the node has done in the group. The log has been started.
func (l *Log) Counts() replica.Counts { return l.running().Counts() }

// Members describes the nodes of the group as they were up to 100 ms ago. The log has been
// started. The result is shared.
func (l *Log) Members() []replica.Member { return l.running().MembersAtTick() }
