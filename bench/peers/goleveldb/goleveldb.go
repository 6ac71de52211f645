// Package goleveldb runs syndtr/goleveldb with Bloom filters of ten bits.
package goleveldb

import (
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/kvd-db/kvd/bench/peers"
)

// memtables is how many there are: one that is written, one that is flushed.
const memtables = 2

type store struct {
	db         *leveldb.DB
	batch      leveldb.Batch
	durability *opt.WriteOptions // of a Put or Delete
}

// Open opens a store.
func Open(o peers.Options) (peers.Store, error) {
	db, err := leveldb.OpenFile(o.Dir, &opt.Options{
		BlockCacheCapacity: int(o.Cache()),
		WriteBuffer:        int(o.Memtables() / memtables),
		Compression:        opt.NoCompression,
		Filter:             filter.NewBloomFilter(10),
	})
	if err != nil {
		return nil, err
	}
	return &store{db: db, durability: &opt.WriteOptions{Sync: o.Sync}}, nil
}

func (s *store) Load(entries []peers.Entry) error {
	s.batch.Reset()
	for _, e := range entries {
		s.batch.Put(e.Key, e.Value)
	}
	return s.db.Write(&s.batch, nil)
}

func (s *store) Settle() error { return s.db.CompactRange(util.Range{}) }

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return peers.Walk(s.forward(from))(visit)
}

func (s *store) Backward(visit peers.Visit) error { return peers.Walk(s.backward())(visit) }

func (s *store) forward(from []byte) (peers.Cursor, error) {
	it := s.db.NewIterator(nil, nil)
	return &cursor{
		it:    it,
		first: func() bool { return it.Seek(from) },
		next:  it.Next,
	}, nil
}

func (s *store) backward() (peers.Cursor, error) {
	it := s.db.NewIterator(nil, nil)
	return &cursor{it: it, first: it.Last, next: it.Prev}, nil
}

func (s *store) Close() error { return s.db.Close() }

type cursor struct {
	it    iterator.Iterator
	first func() bool // nil once it was called
	next  func() bool
}

func (c *cursor) Next() bool {
	move := c.next
	if c.first != nil {
		move, c.first = c.first, nil
	}
	return move()
}

func (c *cursor) Entry() (key, value []byte) { return c.it.Key(), c.it.Value() }
func (c *cursor) Err() error                 { return c.it.Error() }

func (c *cursor) Close() error {
	c.it.Release()
	return c.it.Error()
}
