// Package kvd runs a kvd store in this process, without its network service, through the
// calls that a program would use.
package kvd

import (
	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

type store struct {
	*embed.Store
	engine *engine.Engine // of the same store, for what a program does not ask for
	load   kvd.Batch
	merges merges
}

// Open opens a store with this many partitions, 0 for the default of a new store.
func Open(o peers.Options, partitions int) (peers.Store, error) {
	durability := kv.DurabilityBuffered
	if o.Sync {
		durability = kv.DurabilitySync
	}
	s := new(store)
	e, err := engine.Open(o.Dir, engine.Options{
		Partitions:    partitions,
		Durability:    durability,
		MemtableBytes: o.Memtables(),
		CacheBytes:    o.Cache(),
		Events:        &event.Listener{Compaction: s.merges.add},
	})
	if err != nil {
		return nil, err
	}
	s.engine, s.Store = e, embed.Over(e)
	return s, nil
}

func (s *store) Load(entries []peers.Entry) error {
	defer s.load.Reset()
	for _, e := range entries {
		s.load.Put(e.Key, e.Value)
	}
	_, err := s.Apply(forever, &s.load, kvd.Durable(kvd.Buffered))
	return err
}

func (s *store) Settle() error { return s.engine.CompactAll(forever) }

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return s.walk(visit, kvd.Range{Start: from})
}

func (s *store) Backward(visit peers.Visit) error { return s.walk(visit, kvd.All(), kvd.Reverse()) }

func (s *store) walk(visit peers.Visit, r kvd.Range, opts ...kvd.ScanOption) error {
	// Entries are lent to visit, as the other stores lend theirs.
	for item, err := range s.Store.Scan(forever, r, append(opts, kvd.Borrow())...) {
		if err != nil {
			return err
		}
		if !visit(item.Key, item.Value) {
			return nil
		}
	}
	return nil
}
