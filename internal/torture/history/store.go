package history

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Store is what a Client calls: the methods of the engine, with its errors, and the
// visible part of a restart.
//
// A write that failed with kv.ErrUncertain, ErrDown or context.DeadlineExceeded may
// have been applied, or may still be. One that failed otherwise was not applied.
type Store interface {
	BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error)
	ReleaseSnapshot(id uint64)
	Lookup(ctx context.Context, reads []*kv.Lookup) error
	LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error)
	// Scan reads a whole range and returns the version that it read at.
	Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) ([]kv.Item, kv.SeqNum, error)
	Write(ctx context.Context, writes []*kv.Write) error
	Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error)
	Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error)
	Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error)

	// Life is the number of the store's current life: each restart adds 1.
	Life() int
	// Restarted returns when the store serves in a later life than this one.
	Restarted(ctx context.Context, life int) error
}

// ErrDown: the store stopped before it answered.
var ErrDown = errors.New("the store is down")
