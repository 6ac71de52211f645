// Package event says what happened inside the store, as typed values. The
// engine calls the functions of a Listener; who wires the service turns them
// into log lines and metrics. Nothing correct ever depends on a listener.
package event

import (
	"runtime/debug"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Listener is told what happened. Any function may be nil, and so may the
// Listener: then the event costs a comparison. Functions are called from the
// goroutine that did the work, with no lock held, and must return soon. Safe
// for concurrent use if its functions are.
type Listener struct {
	Flush           func(Flush)
	Compaction      func(Compaction)
	Corruption      func(error)     // a *kv.CorruptionError, each time one is met
	BackgroundError func(error)     // a flush or compaction failed and will be tried again
	Failed          func(error)     // the store stopped for good
	TailDropped     func(TailDrop)  // recovery dropped what was never acknowledged as durable
	SegmentCreated  func(Segment)   // the commit log began a segment
	SegmentRemoved  func(Segment)   // the commit log gave a segment back
	Stall           func(Stall)     // writes are being delayed, or no longer
	ReadOnly        func(ReadOnly)  // puts are refused for lack of space, or no longer
	FileSetAside    func(SetAside)  // an unknown file was moved to lost+found
	Recovered       func(Recovered) // the store is open

	// Panicked is told of a panic, which is a bug, with the stack of the goroutine.
	// Locks and roles that the goroutine has may stay taken for ever, and what they
	// guard half changed: the process should end before the function returns. It is
	// called from within the panic, perhaps with locks held.
	Panicked func(cause any, stack []byte)
}

// Guard tells Panicked of a panic of its goroutine, and then lets the panic go on.
// Every goroutine of the store, and every method of it that a caller may run, defers
// it. So do functions that unlock for a while what a caller of theirs unlocks in the
// end: the end would come first, and hide the reason.
//
// Without Panicked the panic is as if there were no Guard.
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

// TailDrop: bytes behind the last synced offset of the log that are not whole.
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

// Stall: writes are slowed because background work is behind.
type Stall struct {
	Reason string // "memtables" or "deltas"
	Begin  bool   // false: it ended
	Rate   uint64 // bytes per second admitted from here on
}

// ReadOnly: the store takes no puts because of its disk, or takes them again.
type ReadOnly struct {
	Begin  bool   // false: it ended
	Reason string // of a beginning
	Free   uint64 // bytes of the disk
	Resume uint64 // puts are taken again when so many are free; 0: free space does not help
	Cause  error  // of a beginning: what could not be written; nil if nothing was tried
	Took   time.Duration
}

// SetAside: a file that is not ours, or that nothing proves dead.
type SetAside struct {
	From, To string
}

// Recovered sums up an opening of the store.
type Recovered struct {
	Partitions int
	Segments   int
	Records    uint64
	LastSeq    kv.SeqNum
	Took       time.Duration
}
