package server

import (
	"context"

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
//  4. Results are copies and belong to the server.
//  5. Every call returns soon after its context ends.
//  6. Errors are those of package kv. An error of a whole call means that
//     nothing of it was done, unless it is kv.ErrUncertain.
type Store interface {
	// Lookup answers independent reads of the newest state, each for itself: what
	// it found, or the error of that read alone, is in the Lookup. An error of the
	// call means that none was answered. It brings no more values into memory than
	// the budgets of the reads allow.
	Lookup(ctx context.Context, reads []*kv.Lookup) error

	// LookupAt is Lookup at one version for all reads, which it returns.
	LookupAt(ctx context.Context, reads []*kv.Lookup) (kv.SeqNum, error)

	// Write performs independent writes, each acknowledged at its own durability:
	// its version or error is in the Write. It returns when all are decided, or
	// when ctx ends, and then what is undecided has kv.ErrUncertain. An error of
	// the call means that none was done.
	Write(ctx context.Context, writes []*kv.Write) error

	// Apply performs all operations of the batch at one version, which it returns,
	// or none. It may reorder the batch.
	Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error)

	// Scan returns the items of a range in key order as of one version, not older
	// than anything acknowledged before the call. It ends early, with an error,
	// when ctx does. The caller closes it.
	Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (Scanner, error)

	// Limits returns the limits of requests. They do not change.
	Limits() kv.Limits
}

// Scanner walks the items of one scan. It is used by one goroutine.
type Scanner interface {
	// Next moves to the next item; it returns false at the end and on an error.
	Next() bool
	// Item is the item moved to, borrowed until the next call of Next or Close.
	Item() *kv.Item
	// Version is what the whole scan reads at.
	Version() kv.SeqNum
	// Err is why Next returned false: nil at the end of the range.
	Err() error
	// Close frees what the scan holds. It is idempotent.
	Close() error
}
