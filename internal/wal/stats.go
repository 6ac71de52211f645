package wal

import (
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Stats are counts since Open, but for the last two.
type Stats struct {
	Records uint64 // appended and written
	Groups  uint64 // writes that brought them
	Bytes   uint64 // of the groups, headers included
	// The groups by how many records they had, by the units of these, and by bytes.
	GroupRecords histogram.PowerCounts
	GroupUnits   histogram.PowerCounts
	GroupBytes   histogram.PowerCounts

	Syncs uint64 // of segments that are written to
	// SyncTime is the sum of all syncs, SyncMax the longest of them.
	SyncTime time.Duration
	SyncMax  time.Duration
	// SyncMicros has the syncs by their whole microseconds.
	SyncMicros histogram.PowerCounts
	// SyncUnits has them by the units that they served, of those that were to be synced.
	// A sync of two segments counts once.
	SyncUnits histogram.PowerCounts

	Segments  int // files, with the one that is prepared
	LiveBytes int64
}

// RecordsPerSync is how many records one sync served on average.
func (s Stats) RecordsPerSync() float64 {
	if s.Syncs == 0 {
		return 0
	}
	return float64(s.Records) / float64(s.Syncs)
}

// Stats returns the counts so far. Cost: a mutex for a moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.stats
	s.Records, s.Groups, s.Bytes = s.GroupRecords.Sum, s.GroupRecords.Count(), s.GroupBytes.Sum
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
