package kvd

import (
	"context"
	"errors"
	"math"

	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

var (
	_ workload.Scanner    = (*store)(nil)
	_ workload.Transactor = (*store)(nil)
)

// Scan lends its entries to visit, as the other stores lend theirs.
func (s *store) Scan(_ context.Context, start []byte, n int, visit func(key, value []byte) error) error {
	for item, err := range s.Store.Scan(forever, kvd.Range{Start: start}, kvd.Limit(n), kvd.Borrow()) {
		if err != nil {
			return err
		}
		if err := visit(item.Key, item.Value); err != nil {
			return err
		}
	}
	return nil
}

// Transact counts the attempts after the first as conflicts.
func (s *store) Transact(_ context.Context, body func(context.Context, workload.Transaction) error) (int, error) {
	attempts := 0
	err := s.Update(forever, func(tx *kvd.Txn) error {
		attempts++
		return body(forever, transaction{tx})
	}, kvd.MaxAttempts(math.MaxInt))
	return max(attempts-1, 0), err
}

type transaction struct{ tx *kvd.Txn }

func (t transaction) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	value, err := t.tx.Get(ctx, key)
	if errors.Is(err, kvd.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (t transaction) Put(ctx context.Context, key, value []byte) error {
	return t.tx.Put(ctx, key, value)
}
