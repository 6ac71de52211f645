// Package pebble runs Pebble as CockroachDB does: Bloom filters of ten bits, the newest
// format, and blocks of 32 KiB, or else of 4 KiB, Pebble's own default.
package pebble

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/kvd-db/kvd/bench/peers"
)

// memtables is how many a store may have before writers wait.
const memtables = 4

type store struct {
	db         *pebble.DB
	durability *pebble.WriteOptions // of a Put or Delete
}

// The sizes of blocks.
const (
	largeBlock = 32 << 10
	smallBlock = 4 << 10
)

// Open opens a store with large blocks, and OpenSmall one with small blocks.
func Open(o peers.Options) (peers.Store, error) {
	return open(o, largeBlock, pebble.ValueSeparationPolicy{})
}

func OpenSmall(o peers.Options) (peers.Store, error) {
	return open(o, smallBlock, pebble.ValueSeparationPolicy{})
}

// OpenBlob opens a store with large blocks that separates values from ApartBytes on into
// blob files, and OpenSmallBlob one with small blocks.
func OpenBlob(o peers.Options) (peers.Store, error) { return open(o, largeBlock, separation) }

func OpenSmallBlob(o peers.Options) (peers.Store, error) { return open(o, smallBlock, separation) }

// separation is the policy of Pebble's own metamorphic tests, except for the least size
// of a value, which is the same for every store here that separates.
var separation = pebble.ValueSeparationPolicy{
	Enabled:               true,
	MinimumSize:           peers.ApartBytes,
	MaxBlobReferenceDepth: 10,
	RewriteMinimumAge:     time.Minute,
	TargetGarbageRatio:    0.3,
}

func open(o peers.Options, blockBytes int, separation pebble.ValueSeparationPolicy) (peers.Store, error) {
	cache := pebble.NewCache(o.Cache())
	defer cache.Unref() // the store has its own reference
	options := &pebble.Options{
		Cache:                       cache,
		MemTableSize:                uint64(o.Memtables() / memtables),
		MemTableStopWritesThreshold: memtables,
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      quiet{},
	}
	for i := range options.Levels {
		options.Levels[i].BlockSize = blockBytes
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	options.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	options.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return separation }
	db, err := pebble.Open(o.Dir, options)
	if err != nil {
		return nil, err
	}
	s := &store{db, pebble.NoSync}
	if o.Sync {
		s.durability = pebble.Sync
	}
	return s, nil
}

func (s *store) Load(entries []peers.Entry) error {
	b := s.db.NewBatch()
	for _, e := range entries {
		if err := b.Set(e.Key, e.Value, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.NoSync)
}

func (s *store) Settle() error {
	if err := s.db.Flush(); err != nil {
		return err
	}
	return s.db.Compact(context.Background(), []byte{0}, []byte{0xff, 0xff}, true)
}

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return peers.Walk(s.forward(from))(visit)
}

func (s *store) Backward(visit peers.Visit) error { return peers.Walk(s.backward())(visit) }

func (s *store) forward(from []byte) (peers.Cursor, error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	return &cursor{
		it:    it,
		first: func() bool { return it.SeekGE(from) },
		next:  it.Next,
	}, nil
}

func (s *store) backward() (peers.Cursor, error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	return &cursor{it: it, first: it.Last, next: it.Prev}, nil
}

func (s *store) Close() error { return s.db.Close() }

// cursor is an iterator with the value read.
type cursor struct {
	it    *pebble.Iterator
	first func() bool // nil once it was called
	next  func() bool
	value []byte
	err   error // of reading a value
}

func (c *cursor) Next() bool {
	move := c.next
	if c.first != nil {
		move, c.first = c.first, nil
	}
	if c.err != nil || !move() {
		return false
	}
	c.value, c.err = c.it.ValueAndErr()
	return c.err == nil
}

func (c *cursor) Entry() (key, value []byte) { return c.it.Key(), c.value }
func (c *cursor) Close() error               { return c.it.Close() }

func (c *cursor) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.it.Error()
}

// quiet drops the store's log lines, except for fatal errors.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { pebble.DefaultLogger.Fatalf(format, args...) }
