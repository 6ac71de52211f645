package pebble

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

func (s *store) Put(_ context.Context, key, value []byte) error {
	return s.db.Set(key, value, s.durability)
}

func (s *store) Delete(_ context.Context, key []byte) error {
	return s.db.Delete(key, s.durability)
}

func (s *store) Get(_ context.Context, key, buf []byte) ([]byte, bool, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return append(buf[:0], value...), true, closer.Close()
}

// GetBatch gets one after the other: there is no call for several.
func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	for i, key := range keys {
		if err := s.visit(i, key, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) visit(i int, key []byte, visit func(i int, value []byte, found bool) error) error {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return visit(i, nil, false)
	}
	if err != nil {
		return err
	}
	return errors.Join(visit(i, value, true), closer.Close())
}
