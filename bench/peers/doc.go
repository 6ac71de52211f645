// Package peers is the interface of every store of the comparison, including kvd. Each
// subpackage adapts one store and decides its configuration: as its authors recommend,
// within the conditions of Options.
//
// peertest checks that each store does what Store says.
package peers

import (
	"time"

	"github.com/kvd-db/kvd/internal/workload"
)

// Options are the same for every store. No store compresses.
type Options struct {
	// Dir is an empty directory for the store, or one that it has written.
	Dir string
	// MemoryBytes is the budget of the store: a quarter for memtables, the rest for
	// caching blocks. A store that maps its files leaves caching to the kernel.
	MemoryBytes int64
	// Sync makes every Put and Delete reach the disk before it returns. Otherwise they
	// are in the log, and no call waits until that reaches the disk.
	Sync bool
}

// ApartBytes is the least length of the values that a store separates from their keys,
// if it separates values.
const ApartBytes = 256

// Memtables and Cache are the two shares of MemoryBytes.
func (o Options) Memtables() int64 { return o.MemoryBytes / 4 }
func (o Options) Cache() int64     { return o.MemoryBytes - o.Memtables() }

// Entry is a key and its value.
type Entry struct {
	Key, Value []byte
}

// Store is an open store. The methods of workload.Target and workload.BatchGetter, and
// Forward, are safe for concurrent use; the others are not.
//
// Obligations of an implementation, besides those of the two interfaces:
//
//  1. Load puts entries with distinct keys, in any order, as one atomic batch if the
//     store has such batches. It borrows the entries until it returns. It may wait for
//     room but not for a sync of the disk.
//  2. Settle returns when what was loaded is on disk, compacted as far as the store
//     can, and no background work runs.
//  3. A walk shows what was loaded before it began.
//  4. Close releases what the store holds; a store of the same directory can
//     then be opened and has the same entries.
type Store interface {
	workload.Target
	workload.BatchGetter

	Load(entries []Entry) error
	Settle() error

	// Forward visits the keys >= from in ascending order; all keys if from is empty.
	Forward(from []byte, visit Visit) error
	// Backward visits all keys, in descending order.
	Backward(visit Visit) error
}

// Visit sees one entry of a walk and reports whether to go on. It borrows the slices.
//
// Reading the value has happened before: work that a store defers to the first use of a
// value counts as work of the walk.
type Visit func(key, value []byte) bool

// Cursor is a walk of stores that have iterators. It begins before its first entry. Next
// has read the value when it returns. Entry is borrowed until the next call.
type Cursor interface {
	Next() bool
	Entry() (key, value []byte)
	Err() error
	Close() error
}

// LossyTransactor is a Store whose transactions detect no conflicts: of two that change
// the same key at the same time, one may be lost.
type LossyTransactor interface {
	workload.Transactor
	LosesUpdates()
}

// Merger is a Store that reports its compactions.
type Merger interface {
	// Merges returns the compactions that ended so far. Safe for concurrent use.
	Merges() []Span
}

// Span is a period of time.
type Span struct {
	Begin, End time.Time
}

// Insider is a Store that reports internal figures.
type Insider interface {
	// Inside returns the current figures. Safe for concurrent use.
	Inside() Inside
}

// Inside holds the internal figures of a store.
type Inside struct {
	CacheBytes int64  `json:"cacheBytes"` // of cached blocks, in memory
	BlocksRead uint64 `json:"blocksRead"` // that point reads did not find in the cache, so far
	TableBytes int64  `json:"tableBytes"` // of files but for the log
}
