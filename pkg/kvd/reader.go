package kvd

import (
	"context"
	"iter"
	"time"
)

// Reader has the reads that a Client, a Snapshot and a Txn share.
type Reader interface {
	Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error)
	GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error)
	GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error)
	Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error]
}

var _ Reader = (*Client)(nil)

// Item is a key with its value and the version of the write that put it. Every write has a
// version above those of all earlier writes, and above 0.
type Item struct {
	Key, Value []byte
	Version    uint64
	// TTL is the remaining time to live; 0 if the item does not expire.
	TTL time.Duration
}

// Lookup is the answer for one key of GetMany. Its Key is always set.
type Lookup struct {
	Item
	Found bool
}
