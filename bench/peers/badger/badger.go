// Package badger runs Badger without compression and therefore, as its authors
// advise, without a cache of blocks: it maps its files. Blocks are not verified,
// which is its default.
package badger

import (
	"bytes"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/kvd-db/kvd/bench/peers"
)

// memtables is how many a store may have before writers wait.
const memtables = 4

type store struct {
	db      *badger.DB
	options badger.Options
}

// Open opens a store that keeps values beside their keys.
func Open(o peers.Options) (peers.Store, error) {
	threshold := min(1<<20, o.Memtables()/memtables/10) // its default, but what a small memtable takes
	return open(o, threshold)
}

// OpenApart opens a store that separates values from ApartBytes on from their keys.
// Their garbage is not collected: Badger leaves that to its user.
func OpenApart(o peers.Options) (peers.Store, error) { return open(o, peers.ApartBytes) }

func open(o peers.Options, threshold int64) (peers.Store, error) {
	opts := badger.DefaultOptions(o.Dir).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithNumMemtables(memtables).
		WithMemTableSize(o.Memtables() / memtables).
		WithValueThreshold(threshold).
		WithSyncWrites(o.Sync).
		WithDetectConflicts(false). // its transactions are of one write
		WithCompactL0OnClose(true).
		WithLogger(nil)
	db, err := badger.Open(opts)
	if err != nil {
		return nil, err
	}
	return &store{db, opts}, nil
}

func (s *store) Load(entries []peers.Entry) error {
	b := s.db.NewWriteBatch()
	defer b.Cancel()
	for _, e := range entries {
		if err := b.Set(e.Key, e.Value); err != nil {
			return err
		}
	}
	return b.Flush()
}

// Settle closes and opens the store: only closing it writes its memtables to disk.
func (s *store) Settle() error {
	if err := s.db.Close(); err != nil {
		return err
	}
	db, err := badger.Open(s.options)
	if err != nil {
		return err
	}
	s.db = db
	return db.Flatten(1)
}

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return peers.Walk(s.scan(from, false), nil)(visit)
}

func (s *store) Backward(visit peers.Visit) error {
	return peers.Walk(s.scan(nil, true), nil)(visit)
}

// scan reads values one by one: they lie beside their keys, and fetching each in
// a goroutine of its own, as the default does, costs far more than reading it.
func (s *store) scan(from []byte, reverse bool) *cursor {
	txn := s.db.NewTransaction(false)
	it := txn.NewIterator(badger.IteratorOptions{Reverse: reverse})
	return &cursor{txn: txn, it: it, from: bytes.Clone(from), apart: s.options.ValueThreshold <= peers.ApartBytes}
}

func (s *store) Close() error { return s.db.Close() }

type cursor struct {
	txn        *badger.Txn
	it         *badger.Iterator
	from       []byte
	begun      bool
	apart      bool // some values do not lie in tables
	key, value []byte
	err        error
}

func (c *cursor) Next() bool {
	if c.begun {
		c.it.Next()
	} else {
		c.begun = true
		c.it.Seek(c.from) // with no key to seek, it goes to where the walk begins
	}
	if c.err != nil || !c.it.Valid() {
		return false
	}
	item := c.it.Item()
	c.key = item.Key()
	if c.apart {
		c.value, c.err = item.ValueCopy(c.value[:0])
		return c.err == nil
	}
	c.err = item.Value(func(value []byte) error {
		c.value = value // holds as long as the item: one below the threshold lies in its table
		return nil
	})
	return c.err == nil
}

func (c *cursor) Entry() (key, value []byte) { return c.key, c.value }
func (c *cursor) Err() error                 { return c.err }

func (c *cursor) Close() error {
	c.it.Close()
	c.txn.Discard()
	return nil
}
