package load

import "context"

// Target is a service under load.
//
// Get and Set are safe for concurrent use. key and value are borrowed until the call
// returns; the result of Get belongs to the caller until its next call. Every requested
// key was put before: an absent one is an error.
type Target interface {
	Get(ctx context.Context, key []byte) (value []byte, err error)
	Set(ctx context.Context, key, value []byte) error
}

// ManyGetter is a Target that answers several keys in one call.
type ManyGetter interface {
	// GetMany calls visit for each of the keys, in their order.
	GetMany(ctx context.Context, keys [][]byte, visit func(i int, value []byte) error) error
}
