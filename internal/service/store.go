package service

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/kv"
)

// Store is what the server serves. The engine is one.
//
// Obligations of an implementation:
//
//  1. All methods are safe for concurrent use, also during and after its Close
//     (they then return kv.ErrClosed).
//  2. Requests have been checked against Limits; an implementation need not
//     check again.
//  3. Key and value slices of a request are borrowed until the call returns, but
//     for writes that came back with kv.ErrUncertain: those stay untouched and
//     are never reused, since the store may still be at them.
//  4. Results are copies and belong to the server, which may pass the memory of a
//     read's value to another read.
//  5. Every call returns soon after its context ends.
//  6. Errors are those of package kv. An error of a whole call means that
//     nothing of it was done, unless it is kv.ErrUncertain.
//  7. A named write is applied once, however often it comes: again, it succeeds
//     with the version of the first time and changes nothing, whatever its
//     conditions say now. Another write that bears its name is kv.ErrRequestIDReused,
//     as far as the store can tell. One that is marked as retried, that is not remembered
//     and may have been forgotten is kv.ErrUncertain. One that is not so marked, and may have
//     been applied by a retry and forgotten, is a *kv.LateAttemptError. The top bit of a
//     sequence is never set.
//  8. A panic of a method leaves the store unusable. Its owner ends the process from
//     within the panic: see event.Listener.
//  9. What has expired, by Now, is not found, and no condition holds of it.
type Store interface {
	Reader
	Writer
	Snapshots

	// Now is the clock that expiry goes by, in Unix milliseconds. It never goes
	// back.
	Now() uint64

	// Limits returns the limits of requests. They do not change.
	Limits() kv.Limits
}

// Reader is the part of a Store that reads. A version to read at is that of a
// live snapshot, else the call fails with kv.ErrVersionGone; 0 is the newest state,
// not older than anything acknowledged before the call.
type Reader interface {
	// Lookup answers independent reads of the newest state, each for itself: what
	// it found, or the error of that read alone, is in the Lookup. An error of the
	// call means that none was answered. It brings no more values into memory than
	// the budgets of the reads allow.
	Lookup(ctx context.Context, reads []*kv.Lookup) error

	// LookupCached is Lookup for those reads whose answers are in memory. It never
	// waits, nor yields the processor, takes no longer than copying what the budgets
	// allow, and returns the other reads, in the memory of reads.
	LookupCached(reads []*kv.Lookup) (left []*kv.Lookup, err error)

	// LookupCachedAt is LookupAt if memory has the answers to all reads, which share one
	// budget. It never waits. Otherwise it reports false, no answer counts, and the budget
	// is as before.
	LookupCachedAt(reads []*kv.Lookup, at kv.SeqNum) (_ kv.SeqNum, answered bool, err error)

	// LookupAt is Lookup at one version for all reads, which it returns and which
	// is the ReadVersion of each.
	LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error)

	// Scan returns the items of a range as of one version, in key order or, if
	// o.Reverse is set, in exactly the other. It ends early, with an error, when ctx
	// does, and with kv.ErrVersionGone once the snapshot that it reads at has ended.
	// The caller closes it.
	Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (Scanner, error)
}

// Writer is the part of a Store that writes. Conditions are evaluated in the order of the
// log: no other write comes between the evaluation and the write.
type Writer interface {
	// Write performs independent writes, each acknowledged at its own durability:
	// its version or error is in the Write. It returns when all are decided, or
	// when ctx ends, and then what is undecided has kv.ErrUncertain. An error of
	// the call means that none was done.
	//
	// A condition that does not hold is a *kv.ConditionError of that write alone. A
	// read for Previous that fails, fails the write; of a write that is deduplicated
	// Previous means nothing.
	Write(ctx context.Context, writes []*kv.Write) error

	// Apply performs all operations of the batch at one version, which it returns,
	// or none: a guard that does not hold is a *kv.ConditionError. It may reorder
	// the batch.
	Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error)

	// Commit is Apply of the transaction's batch, if nothing that it read has been
	// written since the version that it read at; else it is a *kv.ConflictError, or
	// kv.ErrVersionGone if that is so long ago that the store cannot tell, which is
	// kv.ErrOtherOpening if it was before the store was opened, and kv.ErrVersionAhead if
	// the store has not come to it.
	Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error)

	// Execute evaluates the guards and applies then if all hold, else otherwise; either
	// may be empty. It returns whether they held and the version of the commit or,
	// without one, what they were evaluated at. A named one that comes again returns
	// what it returned the first time, if it applied something then; else it is
	// evaluated anew.
	Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error)
}

// Snapshots are versions that a Store keeps readable under leases.
type Snapshots interface {
	// BeginSnapshot pins a version that everything acknowledged before the call is
	// in. A lease of 0 leaves its length to the store, which may grant less than was
	// asked for. One snapshot too many is kv.ErrOverloaded.
	BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error)

	// KeepSnapshot makes the lease last that long from now, and returns what was
	// granted. kv.ErrVersionGone: it has ended.
	KeepSnapshot(id uint64, lease time.Duration) (granted time.Duration, err error)

	// ReleaseSnapshot ends a lease, unless it has ended.
	ReleaseSnapshot(id uint64)

	// Epoch is the random id of this opening of the store, which every snapshot has.
	Epoch() uint64
}

// Checkpointer is a Store that can be backed up.
type Checkpointer interface {
	// Checkpoint returns a version of the whole store as files, which holds everything
	// acknowledged before the call. At most rate bytes of them are read per second. The caller
	// releases it. One too many is kv.ErrOverloaded.
	Checkpoint(ctx context.Context, rate int64) (Checkpoint, error)
}

// Checkpoint is one version of a store as files that do not change.
type Checkpoint interface {
	backup.Source
	// Release lets the files be deleted. It is idempotent.
	Release()
}

// Scanner walks the items of one scan. It is used by one goroutine.
type Scanner interface {
	// Next moves to the next item; it returns false at the end and on an error.
	Next() bool
	// Item is the item moved to, borrowed until the next call of Next or Close, but for a
	// value of more than kv.LargeValue.
	Item() *kv.Item
	// Version is what the whole scan reads at.
	Version() kv.SeqNum
	// Err is why Next returned false: nil at the end of the range.
	Err() error
	// Close frees what the scan holds. It is idempotent.
	Close() error
}
