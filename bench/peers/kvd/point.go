package kvd

import (
	"context"
	"errors"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
)

// Operations have no deadline, as is common in a program that embeds a store; the other
// stores take no context. All waits are short.
var forever = context.Background()

func (s *store) Put(_ context.Context, key, value []byte) error {
	_, err := s.engine.Put(forever, key, value, kv.WriteOptions{Durability: s.durability})
	return err
}

func (s *store) Delete(_ context.Context, key []byte) error {
	_, err := s.engine.Delete(forever, key, kv.WriteOptions{Durability: s.durability})
	return err
}

func (s *store) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	item, err := s.engine.Get(forever, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, false, nil
	}
	return item.Value, err == nil, err
}

// lookups are the reads of one batch, used again by the next.
type lookups struct {
	reads []kv.Lookup
	refs  []*kv.Lookup
}

var lookupPool = sync.Pool{New: func() any { return new(lookups) }}

func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	l := lookupPool.Get().(*lookups)
	defer lookupPool.Put(l)
	if len(l.reads) < len(keys) {
		l.reads = make([]kv.Lookup, len(keys))
		l.refs = make([]*kv.Lookup, len(keys))
		for i := range l.reads {
			l.refs[i] = &l.reads[i]
		}
	}
	reads := l.reads[:len(keys)]
	for i, key := range keys {
		reads[i] = kv.Lookup{Key: key}
	}
	defer clear(reads)
	if err := s.engine.Lookup(forever, l.refs[:len(keys)]); err != nil {
		return err
	}
	for i := range reads {
		r := &reads[i]
		if r.Err != nil {
			return r.Err
		}
		if err := visit(i, r.Value, r.Found); err != nil {
			return err
		}
	}
	return nil
}
