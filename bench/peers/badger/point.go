package badger

import (
	"context"
	"errors"

	"github.com/dgraph-io/badger/v4"
)

func (s *store) Put(_ context.Context, key, value []byte) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
}

func (s *store) Delete(_ context.Context, key []byte) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.Delete(key) })
}

func (s *store) Get(_ context.Context, key, buf []byte) (value []byte, found bool, err error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value, err = item.ValueCopy(buf[:0])
	return value, err == nil, err
}

func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	for i, key := range keys {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			err = visit(i, nil, false)
		} else if err == nil {
			err = item.Value(func(value []byte) error { return visit(i, value, true) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
