package wal

import "time"

// Stats are counts since Open, but for the last two.
type Stats struct {
	Records uint64 // appended and written
	Groups  uint64 // writes that brought them
	Bytes   uint64 // of the groups, headers included
	Syncs   uint64 // of segments that are written to
	// SyncTime is the sum of all syncs, SyncMax the longest of them.
	SyncTime time.Duration
	SyncMax  time.Duration

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
	a := l.mu.active
	s.Segments = len(l.mu.live) + 1
	s.LiveBytes = max(a.off, a.zeroedTo)
	for _, seg := range l.mu.live {
		s.LiveBytes += seg.bytes
	}
	if p := l.mu.prepared; p != nil {
		s.Segments++
		s.LiveBytes += p.zeroedTo
	}
	return s
}
