// Package kvd runs kvd's engine in this process, without its network service.
package kvd

import (
	"context"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
)

type store struct {
	engine     *engine.Engine
	durability kv.Durability // of a Put or Delete
	writes     []*kv.Write
	merges     merges
}

// Open opens a store with this many partitions.
func Open(o peers.Options, partitions int) (peers.Store, error) {
	s := &store{durability: kv.DurabilityBuffered}
	if o.Sync {
		s.durability = kv.DurabilitySync
	}
	e, err := engine.Open(o.Dir, engine.Options{
		Partitions:    partitions,
		Durability:    kv.DurabilityBuffered,
		MemtableBytes: o.Memtables(),
		CacheBytes:    o.Cache(),
		Events:        &event.Listener{Compaction: s.merges.add},
	})
	if err != nil {
		return nil, err
	}
	s.engine = e
	return s, nil
}

func (s *store) Load(entries []peers.Entry) error {
	for len(s.writes) < len(entries) {
		s.writes = append(s.writes, new(kv.Write))
	}
	writes := s.writes[:len(entries)]
	for i, e := range entries {
		*writes[i] = kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: e.Key, Value: e.Value}}
	}
	if err := s.engine.Write(context.Background(), writes); err != nil {
		return err
	}
	for _, w := range writes {
		if w.Err != nil {
			return w.Err
		}
	}
	return nil
}

func (s *store) Settle() error { return s.engine.CompactAll(context.Background()) }

func (s *store) Forward(from []byte) (peers.Cursor, error) {
	return s.scan(kv.Range{Start: from}, kv.ScanOptions{})
}

func (s *store) Backward() (peers.Cursor, error) {
	return s.scan(kv.Range{}, kv.ScanOptions{Reverse: true})
}

func (s *store) scan(r kv.Range, o kv.ScanOptions) (peers.Cursor, error) {
	scanner, err := s.engine.Scan(context.Background(), r, o)
	if err != nil {
		return nil, err
	}
	return cursor{scanner}, nil
}

func (s *store) Close() error { return s.engine.Close() }

// cursor is a Scanner with its item in two parts.
type cursor struct {
	*engine.Scanner
}

func (c cursor) Entry() (key, value []byte) {
	item := c.Item()
	return item.Key, item.Value
}
