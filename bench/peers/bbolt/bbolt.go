// Package bbolt runs bbolt, the B+ tree in a mapped file: the kernel's page cache
// is its only cache, and it has no memtables.
package bbolt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kvd-db/kvd/bench/peers"
)

const (
	fileName    = "bbolt"
	compactName = "bbolt.compact"
	// compactTxBytes is what a transaction of a compaction copies.
	compactTxBytes = 16 << 20
)

var bucket = []byte("entries")

// batchDelay is how long a writer waits for others to share its transaction; most
// writers then wait for the previous transaction. Guessed: a third of a sync.
const batchDelay = 100 * time.Microsecond

type store struct {
	db      *bbolt.DB
	path    string
	sync    bool
	writers atomic.Int64 // inside Put or Delete
}

// Open opens a store.
func Open(o peers.Options) (peers.Store, error) {
	path := filepath.Join(o.Dir, fileName)
	db, err := open(path, !o.Sync)
	if err != nil {
		return nil, err
	}
	s := &store{db: db, path: path, sync: o.Sync}
	if err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func open(path string, noSync bool) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		NoSync:         noSync,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
	if err == nil {
		db.MaxBatchDelay = batchDelay
	}
	return db, err
}

func (s *store) Load(entries []peers.Entry) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, e := range entries {
			// The bucket borrows keys until the transaction ends, values too.
			if err := b.Put(e.Key, e.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle copies the tree into a new file of full pages, as a compaction of the
// others does.
func (s *store) Settle() error {
	compact := filepath.Join(filepath.Dir(s.path), compactName)
	to, err := open(compact, true)
	if err != nil {
		return err
	}
	if err := errors.Join(bbolt.Compact(to, s.db, compactTxBytes), to.Sync(), to.Close(), s.db.Close()); err != nil {
		return err
	}
	if err := os.Rename(compact, s.path); err != nil {
		return err
	}
	s.db, err = open(s.path, !s.sync)
	return err
}

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return peers.Walk(s.forward(from))(visit)
}

func (s *store) Backward(visit peers.Visit) error { return peers.Walk(s.backward())(visit) }

func (s *store) forward(from []byte) (peers.Cursor, error) {
	from = bytes.Clone(from)
	return s.scan(func(c *bbolt.Cursor) ([]byte, []byte) { return c.Seek(from) }, (*bbolt.Cursor).Next)
}

func (s *store) backward() (peers.Cursor, error) {
	return s.scan((*bbolt.Cursor).Last, (*bbolt.Cursor).Prev)
}

func (s *store) scan(first, next func(*bbolt.Cursor) ([]byte, []byte)) (peers.Cursor, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &cursor{tx: tx, cursor: tx.Bucket(bucket).Cursor(), first: first, next: next}, nil
}

func (s *store) Close() error { return s.db.Close() }

type cursor struct {
	tx         *bbolt.Tx
	cursor     *bbolt.Cursor
	first      func(*bbolt.Cursor) (key, value []byte) // nil once it was called
	next       func(*bbolt.Cursor) (key, value []byte)
	key, value []byte
}

func (c *cursor) Next() bool {
	move := c.next
	if c.first != nil {
		move, c.first = c.first, nil
	}
	c.key, c.value = move(c.cursor)
	return c.key != nil
}

func (c *cursor) Entry() (key, value []byte) { return c.key, c.value }
func (c *cursor) Err() error                 { return nil }
func (c *cursor) Close() error               { return c.tx.Rollback() }
