package workload

import (
	"context"
	"io"
)

// Target is the store under test, as the runner sees it.
//
// Obligations of an implementation:
//
//  1. Put, Delete and Get may be called by many goroutines at once.
//  2. key, value and buf are borrowed until the call returns.
//  3. A nil error of Put or Delete means that later Gets, of any goroutine, see
//     it. What a crash may do to it is the business of the run's durability.
//  4. Get may put the value into buf, or return memory of its own; the runner
//     is done with either before its goroutine calls the target again.
//  5. found tells an absent key from an empty value. An absent key is no error.
//  6. A call returns soon after ctx ends.
//  7. Close is called once, by whoever made the target, after the run.
type Target interface {
	Put(ctx context.Context, key, value []byte) error
	Delete(ctx context.Context, key []byte) error
	Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error)
	Close() error
}

// DiskUser is a Target that knows how many bytes it takes on disk. It is asked
// once an interval, while operations go on.
type DiskUser interface {
	DiskBytes() (int64, error)
}

// BatchGetter is a Target that answers several gets in one call.
type BatchGetter interface {
	// GetBatch calls visit once for each of the keys, one call at a time and in any
	// order, with its place among them. The value is borrowed until visit returns. An
	// error of visit ends the batch, which returns it. Otherwise as Get.
	GetBatch(ctx context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error
}

// Scanner is a Target that can walk over keys in order.
type Scanner interface {
	// Scan calls visit for each of the first n keys from start on, in ascending
	// order; for fewer if there are no more. All are read at one version, not
	// older than what was acknowledged before the call. key and value are borrowed
	// until visit returns. An error of visit ends the scan, which returns it.
	Scan(ctx context.Context, start []byte, n int, visit func(key, value []byte) error) error
}

// Transactor is a Target with transactions that are strictly serializable.
type Transactor interface {
	// Transact runs body in a transaction and commits it. On a conflict both are
	// done again, until they succeed, body fails, or ctx ends; conflicts says how
	// often that was. When body fails nothing is written.
	Transact(ctx context.Context, body func(context.Context, Transaction) error) (conflicts int, err error)
}

// Transaction is one attempt of Transact, used by one goroutine. It borrows what
// it is given until Transact returns.
type Transaction interface {
	// Get reads at the version of the transaction, which is not older than what
	// was acknowledged before Transact was called. The value is borrowed until the
	// next call of the transaction; writes of the transaction need not be seen.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	// Put writes at the commit.
	Put(ctx context.Context, key, value []byte) error
}

// Snapshotter is a Target that can be read as of a moment.
type Snapshotter interface {
	// TakeSnapshot returns the store as it is, until it is closed.
	TakeSnapshot(ctx context.Context) (Snapshot, error)
}

// Snapshot answers as of one moment, whatever is written later. It is used by
// one goroutine.
type Snapshot interface {
	// Get returns memory that the caller may keep.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	io.Closer
}
