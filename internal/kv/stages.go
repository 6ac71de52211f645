package kv

import (
	"sync/atomic"
	"time"
)

// Stages is where the time of one call of the store went. Every moment of the call
// belongs to one stage, so they add up to it. Whoever wants to know has a call fill
// them in: see Lookup, Write and WriteOptions. For everybody else no clock is read.
//
// What a call does one after the other adds up: reads of several partitions, the
// reads that a condition needs, attempts after a conflict. Of what goes on at the
// same time, writes to several partitions, it is the stages of what ended last.
type Stages struct {
	// Inbox is the wait until whoever serves the partition takes the call up: for the
	// micro-batch before, for a linger, and for room where something is full.
	Inbox time.Duration
	// Batch is the wait of a write that was taken until its record is handed to the
	// log: until the micro-batch is laid out, and for the partition's turn.
	Batch time.Duration
	// Engine is the work: lookups in memory and in files; the insertion into the
	// memtable after the log, and the way back to the caller.
	Engine time.Duration
	// LogWrite is the wait until the kernel has the record.
	LogWrite time.Duration
	// Sync is the wait until the disk has it: for the sync that is under way, before or
	// after the record is written, for others whom the next one is to serve too, and
	// for that one.
	Sync time.Duration
}

// Sum returns the time of all stages together.
func (s *Stages) Sum() time.Duration { return s.Inbox + s.Batch + s.Engine + s.LogWrite + s.Sync }

// Course is the moments of a micro-batch that somebody wants the Stages of. Who
// brings it on its way sets them, and whoever waits for it may look at any time.
type Course struct {
	Taken    Moment // by whoever serves the partition
	Handed   Moment // to the log; of a read never
	Held     Moment // by the log, which writes it after a sync that is under way
	Released Moment // to be written, if it was held
	Written  Moment // to the kernel, if it waits for that
	Synced   Moment // likewise
}

// Moment is when something happened. It is set once, and may be read before.
type Moment struct {
	// since is the time from epoch on, never 0 once it happened. A time.Time with a flag
	// is four times as large, and the garbage collector has to look at it: a Course of
	// those cost 256 callers of buffered Puts 2 % of a server's processor time.
	since atomic.Int64
}

var epoch = time.Now()

// Set says that it happened.
func (m *Moment) Set(at time.Time) {
	since := int64(at.Sub(epoch))
	if since == 0 {
		since = 1
	}
	m.since.Store(since)
}

// Get returns when it happened; false if it has not.
func (m *Moment) Get() (time.Time, bool) {
	since := m.since.Load()
	return epoch.Add(time.Duration(since)), since != 0
}
