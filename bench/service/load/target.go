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

// Updater is a Target with transactions.
type Updater interface {
	// Update reads a key and sets it, in one transaction, again and again until that
	// commits. Each time check sees what was read; its error ends the update.
	Update(ctx context.Context, key, value []byte, check func(old []byte) error) error
}

// Comparer is a Target with conditional sets.
type Comparer interface {
	// GetVersion returns a value and its version. The value belongs to the caller.
	GetVersion(ctx context.Context, key []byte) (value []byte, version uint64, err error)
	// SetIfVersion sets a key that has this version, and returns the new version.
	// SetIfValue sets a key that has the value old. If the key has another, both fail.
	SetIfVersion(ctx context.Context, key, value []byte, version uint64) (newVersion uint64, err error)
	SetIfValue(ctx context.Context, key, value, old []byte) error
}
