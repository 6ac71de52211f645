package bbolt

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"
)

func (s *store) Put(_ context.Context, key, value []byte) error {
	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) })
}

func (s *store) Delete(_ context.Context, key []byte) error {
	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Delete(key) })
}

// update lets callers that wait for a disk anyway share a transaction. A lone caller
// does not wait for others.
func (s *store) update(change func(*bbolt.Tx) error) error {
	company := s.writers.Add(1) > 1
	defer s.writers.Add(-1)
	if s.sync && company {
		return s.db.Batch(change)
	}
	return s.db.Update(change)
}

func (s *store) Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error) {
	err = s.GetBatch(ctx, [][]byte{key}, func(_ int, v []byte, ok bool) error {
		value, found = append(buf[:0], v...), ok
		return nil
	})
	return value, found, err
}

func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	tx, err := s.db.Begin(false)
	if err != nil {
		return err
	}
	b := tx.Bucket(bucket)
	for i, key := range keys {
		value := b.Get(key)
		if err := visit(i, value, value != nil); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Rollback()
}
