package kvd

import (
	"fmt"
	"time"
)

// TxnOption is an option of one snapshot or transaction.
type TxnOption func(*txnOptions)

type txnOptions struct {
	lease       time.Duration
	maxAge      time.Duration
	maxAttempts int
	commit      []WriteOption
}

// Lease asks the server to keep the snapshot for d after the last renewal. The client renews
// the lease while the snapshot is open. The server may grant less; without the option it
// chooses. The lease bounds how long a client that has disappeared keeps old versions alive.
func Lease(d time.Duration) TxnOption { return func(o *txnOptions) { o.lease = d } }

// MaxAge ends a snapshot that is still open after d, 10 minutes by default: the client stops
// renewing the lease, and soon reads return ErrVersionGone.
func MaxAge(d time.Duration) TxnOption { return func(o *txnOptions) { o.maxAge = d } }

// MaxAttempts bounds how often Update and Transact run a transaction, and View its function.
// The default is 10.
func MaxAttempts(n int) TxnOption { return func(o *txnOptions) { o.maxAttempts = n } }

// CommitWith passes options to the commit of Update and Transact: Durable and Timed. Other options
// are refused before the transaction runs.
func CommitWith(opts ...WriteOption) TxnOption { return func(o *txnOptions) { o.commit = opts } }

func newTxnOptions(opts []TxnOption) (txnOptions, error) {
	o := txnOptions{maxAge: 10 * time.Minute, maxAttempts: 10}
	for i, opt := range opts {
		if opt == nil {
			return o, nilOption(i)
		}
		opt(&o)
	}
	_, err := collect(o.commit, ofCommit)
	switch {
	case o.lease < 0:
		return o, fmt.Errorf("%w: lease %v is negative", ErrInvalid, o.lease)
	case o.maxAge <= 0:
		return o, fmt.Errorf("%w: MaxAge must be positive, not %v", ErrInvalid, o.maxAge)
	case o.maxAttempts < 1:
		return o, fmt.Errorf("%w: %d attempts, want at least 1", ErrInvalid, o.maxAttempts)
	}
	return o, err
}
