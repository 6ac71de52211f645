package wal

import (
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Stats are counts since Open; Segments and LiveBytes are the state now.
type Stats struct {
	Records uint64 // appended and written
	Frames  uint64 // frames of records written, one write each
	Bytes   uint64 // of the frames, headers included
	// Distributions of the frames by their records, by the units of these, and by bytes.
	FrameRecords histogram.PowerCounts
	FrameUnits   histogram.PowerCounts
	FrameBytes   histogram.PowerCounts

	Syncs uint64 // of segments that are written to
	// SyncTime is the sum of all syncs, SyncMax the longest of them.
	SyncTime time.Duration
	SyncMax  time.Duration
	// SyncMicros is the distribution of the syncs by whole microseconds.
	SyncMicros histogram.PowerCounts
	// SyncUnits is the distribution of the syncs by the units that they served, counting
	// only records that asked for a sync. A sync of two segments counts once.
	SyncUnits histogram.PowerCounts

	Segments  int // files, including the prepared one
	LiveBytes int64
}

// RecordsPerSync is how many records one sync served on average.
func (s Stats) RecordsPerSync() float64 {
	if s.Syncs == 0 {
		return 0
	}
	return float64(s.Records) / float64(s.Syncs)
}

// Stats returns the counts so far. Cost: holds the log's mutex briefly.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.stats
	s.Records, s.Frames, s.Bytes = s.FrameRecords.Sum, s.FrameRecords.Count(), s.FrameBytes.Sum
	s.Syncs = s.SyncMicros.Count()
	a := l.mu.active
	s.Segments = len(l.mu.live)
	if a != nil { // not suspended
		s.Segments++
		s.LiveBytes = max(a.off, a.zeroedTo)
	}
	for _, seg := range l.mu.live {
		s.LiveBytes += seg.bytes
	}
	if p := l.mu.prepared; p != nil {
		s.Segments++
		s.LiveBytes += p.zeroedTo
	}
	return s
}
