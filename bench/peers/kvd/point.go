package kvd

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// Operations have no deadline, as is common in a program that embeds a store; the other
// stores take no context. All waits are short.
var forever = context.Background()

func (s *store) Put(_ context.Context, key, value []byte) error {
	return s.Store.Put(forever, key, value)
}

func (s *store) Delete(_ context.Context, key []byte) error { return s.Store.Delete(forever, key) }

func (s *store) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	value, err := s.Store.Get(forever, key)
	if errors.Is(err, kvd.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	items, err := s.GetMany(forever, keys)
	if err != nil {
		return err
	}
	for i := range items {
		if err := visit(i, items[i].Value, items[i].Found); err != nil {
			return err
		}
	}
	return nil
}
