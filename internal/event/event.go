// Package event describes what happened inside the store, as typed values. The engine
// calls the functions of a Listener; package daemon turns the calls into log lines and
// metrics. Correctness never depends on a listener.
package event

import (
	"runtime/debug"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Listener receives events. Any function may be nil, and so may the Listener itself:
// the event then costs a comparison. Functions are called by the goroutine that did the
// work, with no lock held, and must return soon. A Listener is safe for concurrent use
// if its functions are.
type Listener struct {
	Flush           func(Flush)
	Compaction      func(Compaction)
	Corruption      func(error)     // a *kv.CorruptionError, each time one is found
	Damaged         func(Damage)    // a place was found damaged for the first time since the store was opened
	BackgroundError func(error)     // a flush or compaction failed and will be retried
	Failed          func(error)     // the store stopped permanently
	TailDropped     func(TailDrop)  // recovery dropped bytes that were never acknowledged as durable
	SegmentCreated  func(Segment)   // the commit log began a segment
	SegmentRemoved  func(Segment)   // the commit log removed a segment
	Stall           func(Stall)     // writes are being delayed, or no longer
	ReadOnly        func(ReadOnly)  // puts are rejected for the state of the disk, or no longer
	FileSetAside    func(SetAside)  // an unknown file was moved to lost+found
	Recovered       func(Recovered) // the store is open
	Archive         func(Archive)   // the log cannot be archived, or can again, or a part of it is missing

	// Panicked reports a panic, which is a bug, with the stack of the goroutine. Locks
	// that the goroutine holds may stay locked, and the data they guard may be half
	// changed: the process should end before the function returns. It is called during
	// the panic, possibly with locks held.
	Panicked func(cause any, stack []byte)
}

// Guard calls Panicked if its goroutine panics, and then lets the panic continue. Every
// goroutine of the store, and every method that a caller may run, defers it. So does a
// function that temporarily releases a lock which its caller unlocks by defer:
// otherwise the caller's unlock would fail first and hide the cause.
//
// If Panicked is nil, Guard does nothing.
func (l *Listener) Guard() {
	if l == nil || l.Panicked == nil {
		return
	}
	if cause := recover(); cause != nil {
		l.Panicked(cause, debug.Stack())
		panic(cause)
	}
}

// Flush: a sealed memtable became a delta.
type Flush struct {
	Partition int
	Entries   uint64
	Bytes     uint64 // written
	Tables    int
	Took      time.Duration
	Err       error
}

// Compaction: deltas became a delta, or deltas and base became base.
type Compaction struct {
	Partition    int
	Kind         string // "deltas" or "base"
	InputTables  int
	OutputTables int
	InputBytes   uint64
	OutputBytes  uint64
	Dropped      uint64 // superseded versions and tombstones
	Took         time.Duration
	Err          error
}

// TailDrop: bytes after the last synced offset of the log that are no complete frame.
type TailDrop struct {
	File  string
	Off   int64
	Bytes int64
}

// Segment is one file of the commit log.
type Segment struct {
	Num   uint64
	Bytes int64
}

// Damage: a place in a file of the store does not hold what was written.
type Damage struct {
	File   string // path inside the data directory
	Kind   string // "table", "values", "log", "manifest", "store" or "clock"
	Offset int64  // -1: the whole file, or not known
	Reason string
	// First and Last bound the keys that cannot be read for it; nil: not known.
	First, Last []byte
}

// Stall: writes are delayed because background work lags.
type Stall struct {
	Reason string // "memtables" or "deltas"
	Begin  bool   // false: it ended
	Rate   uint64 // bytes per second admitted from now on
}

// ReadOnly: the store rejects puts because of its disk, or accepts them again.
type ReadOnly struct {
	Begin  bool   // false: it ended
	Reason string // if Begin
	Free   uint64 // free bytes of the disk
	Resume uint64 // puts are accepted again when this many bytes are free; 0: free space does not help
	Cause  error  // if Begin: the failed write; nil if none was tried
	Took   time.Duration
}

// SetAside: a file that is not the store's, or that nothing proves obsolete.
type SetAside struct {
	From, To string
}

// Recovered summarizes an opening of the store.
type Recovered struct {
	Partitions int
	Segments   int
	Records    uint64
	LastSeq    kv.SeqNum
	Took       time.Duration
}

// Archive: the log cannot be archived, or can again, or a part of it never will be.
type Archive struct {
	Err       error  // why it cannot be archived
	Gap       string // why a part of the log will be missing in the archive
	Recovered bool   // it can be archived again
}
