package raftlog

import (
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Stats counts what the log has done since it was opened, and tells what it holds.
type Stats struct {
	// WriteBytes is the distribution of the writes by their bytes, headers included, and
	// WriteEntries by their entries.
	WriteBytes, WriteEntries histogram.PowerCounts
	// SyncMicros is the distribution of the calls of Write with sync by whole microseconds:
	// the write, the sync, and the begin of a segment if the call needed one. SyncMax is the
	// longest of them, SyncTime their sum.
	SyncMicros        histogram.PowerCounts
	SyncMax, SyncTime time.Duration

	Segments  int
	LiveBytes int64 // of all segments
}

// counters is what a Log counts. Any goroutine may read it.
type counters struct {
	writeBytes, writeEntries, syncMicros histogram.Powers
	syncMax, syncTime                    atomic.Int64 // nanoseconds
	segments, liveBytes                  atomic.Int64
	active                               atomic.Uint64 // number of the last segment with frames
}

// Stats returns the counts so far. In contrast to the other methods it may be called at any
// time, from any goroutine.
func (l *Log) Stats() Stats {
	c := &l.counters
	return Stats{
		WriteBytes: c.writeBytes.Counts(), WriteEntries: c.writeEntries.Counts(), SyncMicros: c.syncMicros.Counts(),
		SyncMax: time.Duration(c.syncMax.Load()), SyncTime: time.Duration(c.syncTime.Load()),
		Segments: int(c.segments.Load()), LiveBytes: c.liveBytes.Load(),
	}
}

// synced notes how long a Write with sync took.
func (c *counters) synced(took time.Duration) {
	c.syncMicros.Record(uint64(took.Microseconds()))
	c.syncTime.Add(int64(took))
	c.syncMax.Store(max(c.syncMax.Load(), int64(took))) // there is one writer
}

// sized notes the size of a segment, 0 if it is gone.
func (l *Log) sized(num uint64, bytes int64) {
	l.counters.liveBytes.Add(bytes - l.sizes[num])
	if l.sizes[num] = bytes; bytes == 0 {
		delete(l.sizes, num)
	}
	l.counters.segments.Store(int64(len(l.sizes)))
}

// measure notes the sizes of all segments.
func (l *Log) measure() error {
	l.counters.active.Store(l.active)
	for num, f := range l.files {
		n, err := f.Size()
		if err != nil {
			return err
		}
		l.sized(num, n)
	}
	return nil
}
