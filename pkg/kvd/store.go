package kvd

import (
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Store has the calls of a store, remote or embedded: a [Client] is a Store, and package embed
// opens one in this process. Code that takes a Store works with both.
type Store interface {
	Reader
	Writer
	PutItem(ctx context.Context, key, value []byte, opts ...WriteOption) (Written, error)
	DeleteItem(ctx context.Context, key []byte, opts ...WriteOption) (Written, error)
	Apply(ctx context.Context, b *Batch, opts ...WriteOption) (version uint64, err error)
	Execute(ctx context.Context, e Execution, opts ...WriteOption) (ExecuteResult, error)
	Pipeline() *Pipeline

	Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error
	View(ctx context.Context, fn func(s *Snapshot) error, opts ...TxnOption) error
	Begin(opts ...TxnOption) (*Txn, error)
	Snapshot(ctx context.Context, opts ...TxnOption) (*Snapshot, error)

	SlowRequests(ctx context.Context, limit int) (SlowLog, error)
	ClearSlowRequests(ctx context.Context) error
	Ping(ctx context.Context) error
	Close() error
}

var _ Store = (*Client)(nil)

// Over returns a client that performs its calls on b and reports them to hook, as with
// WithHook, unless that is nil. It is for other packages of this module: the type of b is
// internal.
func Over(b backend.Backend, hook func(CallInfo)) *Client {
	return newClient(withHook(b, hook), Default)
}
