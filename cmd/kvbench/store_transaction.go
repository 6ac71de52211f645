package main

import (
	"context"
	"errors"
	"math"

	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func (t *storeTarget) Scan(ctx context.Context, start []byte, n int, visit func(key, value []byte) error) error {
	for item, err := range t.store.Scan(ctx, kvd.Range{Start: start}, kvd.Limit(n)) {
		if err != nil {
			return err
		}
		if err := visit(item.Key, item.Value); err != nil {
			return err
		}
	}
	return nil
}

// Transact counts the attempts after the first as conflicts. The store waits a
// little before each.
func (t *storeTarget) Transact(ctx context.Context, body func(context.Context, workload.Transaction) error) (int, error) {
	attempts := 0
	err := t.store.Update(ctx, func(tx *kvd.Txn) error {
		attempts++
		return body(ctx, storeTransaction{tx})
	}, kvd.MaxAttempts(math.MaxInt))
	return max(attempts-1, 0), err
}

type storeTransaction struct{ tx *kvd.Txn }

func (t storeTransaction) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return found(t.tx.Get(ctx, key))
}

func (t storeTransaction) Put(ctx context.Context, key, value []byte) error {
	return t.tx.Put(ctx, key, value)
}

func (t *storeTarget) TakeSnapshot(ctx context.Context) (workload.Snapshot, error) {
	snapshot, err := t.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return storeSnapshot{snapshot}, nil
}

type storeSnapshot struct{ *kvd.Snapshot }

func (s storeSnapshot) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return found(s.Snapshot.Get(ctx, key))
}

// found tells an absent key from an error.
func found(value []byte, err error) ([]byte, bool, error) {
	if errors.Is(err, kvd.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}
