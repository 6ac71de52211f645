package pebble

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/workload"
)

var _ peers.LossyTransactor = (*store)(nil)

// Transact reads the newest values and writes a batch. Pebble detects no conflicts.
func (s *store) Transact(ctx context.Context, body func(context.Context, workload.Transaction) error) (int, error) {
	t := transaction{db: s.db, batch: s.db.NewBatch()}
	err := body(ctx, &t)
	if err = errors.Join(err, t.release()); err == nil {
		err = t.batch.Commit(s.durability)
	}
	return 0, errors.Join(err, t.batch.Close())
}

// LosesUpdates says that concurrent transactions may lose updates.
func (s *store) LosesUpdates() {}

type transaction struct {
	db    *pebble.DB
	batch *pebble.Batch
	value io.Closer // of the last Get; nil if it found none
}

func (t *transaction) Get(_ context.Context, key []byte) ([]byte, bool, error) {
	if err := t.release(); err != nil {
		return nil, false, err
	}
	value, closer, err := t.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	t.value = closer
	return value, err == nil, err
}

func (t *transaction) Put(_ context.Context, key, value []byte) error {
	return t.batch.Set(key, value, nil)
}

func (t *transaction) release() error {
	if t.value == nil {
		return nil
	}
	value := t.value
	t.value = nil
	return value.Close()
}
