package history

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Store is what a Client asks: the methods of the engine, with its errors, and
// what a restart looks like from outside.
//
// A write that failed with kv.ErrUncertain, ErrDown or context.DeadlineExceeded
// may or may not have happened, or happen yet. One that failed otherwise did not.
type Store interface {
	BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error)
	ReleaseSnapshot(id uint64)
	Lookup(ctx context.Context, reads []*kv.Lookup) error
	LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error)
	// Scan reads a whole range and says at which version.
	Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) ([]kv.Item, kv.SeqNum, error)
	Write(ctx context.Context, writes []*kv.Write) error
	Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error)
	Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error)
	Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error)

	// Life is the number of the store's life: 1 more after each restart.
	Life() int
	// Restarted returns when the store serves in a later life than that.
	Restarted(ctx context.Context, life int) error
}

// ErrDown: the life of the store ended before the answer came.
var ErrDown = errors.New("the store is down")
