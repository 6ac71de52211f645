package kvd

import (
	"fmt"
	"time"
)

// TxnOption is a choice for one snapshot or transaction.
type TxnOption func(*txnOptions)

type txnOptions struct {
	lease       time.Duration
	maxAge      time.Duration
	maxAttempts int
	commit      []WriteOption
}

// Lease asks the server to keep the snapshot for d after it last heard of it,
// which the client sees to while the snapshot is open. The server may grant less;
// without the option it chooses. It is how long a client that vanishes keeps the
// server from dropping old versions.
func Lease(d time.Duration) TxnOption { return func(o *txnOptions) { o.lease = d } }

// MaxAge ends a snapshot that is still open when it is d old, 10 minutes by
// default: its lease is not renewed any more, so reads soon are ErrVersionGone.
func MaxAge(d time.Duration) TxnOption { return func(o *txnOptions) { o.maxAge = d } }

// MaxAttempts bounds how often Update and Transact run a transaction, and View its
// function, 10 times by default.
func MaxAttempts(n int) TxnOption { return func(o *txnOptions) { o.maxAttempts = n } }

// CommitWith has Update and Transact commit with options: Durable and Timed.
func CommitWith(opts ...WriteOption) TxnOption { return func(o *txnOptions) { o.commit = opts } }

func newTxnOptions(opts []TxnOption) (txnOptions, error) {
	o := txnOptions{maxAge: 10 * time.Minute, maxAttempts: 10}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.lease < 0:
		return o, fmt.Errorf("%w: lease %v is negative", ErrInvalid, o.lease)
	case o.maxAge <= 0:
		return o, fmt.Errorf("%w: greatest age %v, want more than nothing", ErrInvalid, o.maxAge)
	case o.maxAttempts < 1:
		return o, fmt.Errorf("%w: %d attempts, want at least 1", ErrInvalid, o.maxAttempts)
	}
	return o, nil
}
