package kvd

import (
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Store is what a program does with a store, wherever that is: a [Client] of a server is
// one, and so is the embed.Store of package embed, which is in this process. Code that
// takes a Store switches between the two by the line that opens it.
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

// Over returns a client whose calls b performs. It is for the other packages of this
// module: the type of b is internal.
func Over(b backend.Backend) *Client { return newClient(b, Default) }
