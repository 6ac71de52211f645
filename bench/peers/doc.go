// Package peers is the one face that every store of the comparison shows, kvd
// among them. Each subpackage adapts one store and decides how it is set up: as
// its authors recommend, within the conditions of Options.
//
// The comparison holds stores to what Store says, and peertest checks that they
// do it.
package peers

import (
	"time"

	"github.com/kvd-db/kvd/internal/workload"
)

// Options are the same for every store. Nothing is compressed.
type Options struct {
	// Dir is an empty directory of the store's own, or one it has written.
	Dir string
	// MemoryBytes is what the store may spend on memtables, a quarter of it, and
	// on caching blocks, the rest. One that maps its files instead leaves caching
	// to the kernel.
	MemoryBytes int64
	// Sync makes every Put and Delete reach the disk before it returns. Otherwise
	// they are in the log, which nobody waits for to reach the disk.
	Sync bool
}

// ApartBytes is the least length of a value that a store which keeps some values
// apart from their keys keeps apart.
const ApartBytes = 256

// Memtables and Cache are the two shares of MemoryBytes.
func (o Options) Memtables() int64 { return o.MemoryBytes / 4 }
func (o Options) Cache() int64     { return o.MemoryBytes - o.Memtables() }

// Entry is a key and its value.
type Entry struct {
	Key, Value []byte
}

// Store is a store that is open. The methods of workload.Target and
// workload.BatchGetter are those of many goroutines; one goroutine uses the others.
//
// Obligations of an implementation, besides those of the two:
//
//  1. Load puts entries, whose keys are distinct and in any order. It borrows
//     them until it returns. It may wait for room but not for a disk to sync.
//  2. Settle returns when what was loaded is on disk, merged as far as the store
//     can merge it, and nothing goes on in the background.
//  3. A Cursor gives what was loaded before it was made. It is closed before the
//     store is.
//  4. Close gives back what the store holds; a store of the same directory can
//     then be opened and has the same entries.
type Store interface {
	workload.Target
	workload.BatchGetter

	Load(entries []Entry) error
	Settle() error

	// Forward returns a cursor over the keys from the first one that is >= from, in
	// ascending order; over all if from is empty.
	Forward(from []byte) (Cursor, error)
	// Backward returns a cursor over all keys, in descending order.
	Backward() (Cursor, error)
}

// Cursor walks in the one direction it was made for. It begins before its first
// entry.
//
// Next has read the value when it returns: what a store would do at the first
// touch of a value counts as the work of the walk. Entry is borrowed until the
// next call. A caller that stops because Next was false must look at Err.
type Cursor interface {
	Next() bool
	Entry() (key, value []byte)
	Err() error
	Close() error
}

// Merger is a Store that tells when it compacted.
type Merger interface {
	// Merges returns the compactions that ended so far. Safe for concurrent use.
	Merges() []Span
}

// Span is a time in which something went on.
type Span struct {
	Begin, End time.Time
}

// Insider is a Store that tells what cannot be seen from outside.
type Insider interface {
	// Inside returns what it is at the moment. Safe for concurrent use.
	Inside() Inside
}

// Inside is what a store tells of itself.
type Inside struct {
	CacheBytes int64  `json:"cacheBytes"` // of cached blocks, in memory
	BlocksRead uint64 `json:"blocksRead"` // that point reads did not find in the cache, so far
	TableBytes int64  `json:"tableBytes"` // of files but for the log
}
