package load

import "context"

// Target is a service as callers see it.
//
// Get and Set may be called by many goroutines at once. key and value are borrowed
// until the call returns; what Get returns is the caller's until its next call. Every
// key that is asked for was put before: an absent one is an error.
type Target interface {
	Get(ctx context.Context, key []byte) (value []byte, err error)
	Set(ctx context.Context, key, value []byte) error
}

// ManyGetter is a Target that answers several keys in one call.
type ManyGetter interface {
	// GetMany calls visit for each of the keys, in their order.
	GetMany(ctx context.Context, keys [][]byte, visit func(i int, value []byte) error) error
}
