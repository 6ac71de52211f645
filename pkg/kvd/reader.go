package kvd

import (
	"context"
	"iter"
	"time"
)

// Reader is what a Client, a Snapshot and a Txn share, so that helpers may take
// any of them.
type Reader interface {
	Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error)
	GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error)
	GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error)
	Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error]
}

var _ Reader = (*Client)(nil)

// Item is a key with its value and the version that wrote it. Versions grow with
// every write of the store; none is 0.
type Item struct {
	Key, Value []byte
	Version    uint64
	// TTL is what is left of the item's time to live; 0 if it lives until it is
	// overwritten or deleted.
	TTL time.Duration
}

// Lookup is one answer of GetMany.
type Lookup struct {
	Item
	Found bool
}
