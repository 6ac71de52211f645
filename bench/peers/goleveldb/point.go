package goleveldb

import (
	"context"
	"errors"

	"github.com/syndtr/goleveldb/leveldb"
)

func (s *store) Put(_ context.Context, key, value []byte) error {
	return s.db.Put(key, value, s.durability)
}

func (s *store) Delete(_ context.Context, key []byte) error {
	return s.db.Delete(key, s.durability)
}

func (s *store) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	value, err := s.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// GetBatch gets one after the other: there is no call for several.
func (s *store) GetBatch(ctx context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	for i, key := range keys {
		value, found, err := s.Get(ctx, key, nil)
		if err == nil {
			err = visit(i, value, found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
