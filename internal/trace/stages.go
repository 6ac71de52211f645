// Package trace records where the time of a call of the store goes: [Stages] is what the
// caller is told, [Batch] what a micro-batch and the log note for all calls in it.
package trace

import (
	"sync/atomic"
	"time"
)

// Stages breaks down the time of one call of the store. Every moment of the call
// belongs to exactly one stage, so the stages add up to its duration. They are measured
// only for calls that ask for them: see the field Stages of kv.Lookup, kv.Write and
// kv.WriteOptions. Other calls read no clock.
//
// Sequential parts of a call add up: reads of several partitions, the reads that a
// condition needs, attempts after a conflict. Of parallel parts, such as writes to
// several partitions, the stages are those of the part that ended last.
type Stages struct {
	// Inbox is the wait until the partition's leader takes the call up: for the
	// micro-batch before, for a linger, and for room where something is full.
	Inbox time.Duration
	// Batch is the time from there until the log gets the record of a write: until the
	// micro-batch is encoded, and until it is the partition's turn to append.
	Batch time.Duration
	// Engine is the work itself: lookups in memory and in files, and after the log the
	// insertion into the memtable and the return to the caller.
	Engine time.Duration
	// LogWrite is the wait until the kernel has the record.
	LogWrite time.Duration
	// Sync is the wait until the disk has the record: for the sync in progress, before
	// or after the record is written, for other writers that the next sync is to cover
	// too, and for that sync.
	Sync time.Duration
}

// Sum returns the sum of all stages.
func (s *Stages) Sum() time.Duration { return s.Inbox + s.Batch + s.Engine + s.LogWrite + s.Sync }

// Batch records when a micro-batch reached each stage, if a caller asked for Stages.
// The leader and the log set the times; waiting callers may read them at any time.
type Batch struct {
	Taken    AtomicTime // by the partition's leader
	Handed   AtomicTime // to the log; of a read never
	Held     AtomicTime // by the log, which writes the record after the sync in progress
	Released AtomicTime // to be written, if it was held
	Written  AtomicTime // to the kernel, if the record waits for that
	Synced   AtomicTime // likewise
}

// AtomicTime is the time of an event. It is set once and may be read before that.
type AtomicTime struct {
	// since is the time since epoch, never 0 once the time is set. It holds no
	// pointer for the garbage collector to scan, as a time.Time would, and is a quarter
	// of the size.
	since atomic.Int64
}

var epoch = time.Now()

// Set records the time of the event.
func (t *AtomicTime) Set(at time.Time) {
	since := int64(at.Sub(epoch))
	if since == 0 {
		since = 1
	}
	t.since.Store(since)
}

// Get returns the time of the event, or false if it has not happened.
func (t *AtomicTime) Get() (time.Time, bool) {
	since := t.since.Load()
	return epoch.Add(time.Duration(since)), since != 0
}
