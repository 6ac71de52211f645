package workload

import (
	"context"
	"io"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Target is the store under test.
//
// Obligations of an implementation:
//
//  1. Put, Delete and Get are safe for concurrent use.
//  2. key, value and buf are borrowed until the call returns.
//  3. After Put or Delete returns nil, later Gets of any goroutine see its
//     effect. The durability of the run determines what a crash may undo.
//  4. Get may put the value into buf, or return memory of its own; the runner
//     does not use either after its goroutine's next call of the target.
//  5. found tells an absent key from an empty value. An absent key is no error.
//  6. A call returns soon after ctx ends.
//  7. The creator of the target calls Close once, after the run.
type Target interface {
	Put(ctx context.Context, key, value []byte) error
	Delete(ctx context.Context, key []byte) error
	Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error)
	Close() error
}

// DiskUser is a Target that reports its disk usage. DiskBytes is called once a
// second, during operations.
type DiskUser interface {
	DiskBytes() (int64, error)
}

// Remote is a Target in another process, which can tell how much processor time that process
// has used: see loadgen.Run.Server.
type Remote interface {
	ServerTime() (loadgen.ServerTime, error)
}

// Refuser is a Target that may refuse operations because of overload, before it does
// anything. A load repeats them for a while; in an open loop they are counted; in a closed loop
// they end the run, as any error does.
type Refuser interface {
	Refused(err error) bool
}

// BatchGetter is a Target that answers several gets in one call.
type BatchGetter interface {
	// GetBatch calls visit once for each of the keys with its index, one call at a time
	// and in any order. The value is borrowed until visit returns. If visit fails,
	// GetBatch ends and returns the error. Otherwise as Get.
	GetBatch(ctx context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error
}

// Scanner is a Target that can scan keys in order.
type Scanner interface {
	// Scan calls visit for each of the first n keys from start on, in ascending order;
	// for fewer if there are no more. All are read at one version, not older than what
	// was acknowledged before the call. key and value are borrowed until visit returns.
	// If visit fails, Scan ends and returns the error.
	Scan(ctx context.Context, start []byte, n int, visit func(key, value []byte) error) error
}

// Transactor is a Target with strictly serializable transactions.
type Transactor interface {
	// Transact runs body in a transaction and commits it. On a conflict it repeats
	// both, until they succeed, body fails, or ctx ends; conflicts is the number of
	// repetitions. If body fails, nothing is written.
	Transact(ctx context.Context, body func(context.Context, Transaction) error) (conflicts int, err error)
}

// Transaction is one attempt of Transact, for one goroutine only. It borrows its
// arguments until Transact returns.
type Transaction interface {
	// Get reads at the version of the transaction, which is not older than what was
	// acknowledged before Transact was called. The value is borrowed until the next
	// call of the transaction. Get need not see the transaction's own writes.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	// Put writes at the commit.
	Put(ctx context.Context, key, value []byte) error
}

// Snapshotter is a Target with snapshots.
type Snapshotter interface {
	// TakeSnapshot returns the current state of the store, until the Snapshot is
	// closed.
	TakeSnapshot(ctx context.Context) (Snapshot, error)
}

// Snapshot is the state of the store at one version, whatever is written later. For one
// goroutine only.
type Snapshot interface {
	// Get returns memory that the caller owns.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	io.Closer
}
