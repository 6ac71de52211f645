package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

const tableName = "000001.sst"

var tableID = kv.FileID{Partition: 1, Num: 1}

// table is a sorted file in memory, and which block each of its keys is in.
type table struct {
	fs         *vfs.Mem
	blocks     int
	blockBytes int64   // of a block in the cache, on average
	blockOf    []int32 // by key
	first      []int32 // the first key of each block
}

// newTable writes a file of entries with 16-byte keys and 100-byte values.
func newTable(keys int) (*table, error) {
	t := &table{fs: vfs.NewMem()}
	f, err := t.fs.Create(tableName)
	if err != nil {
		return nil, err
	}
	w := sstable.NewWriter(f, tableID, sstable.WriterOptions{})
	value := make([]byte, 100)
	for i := range keys {
		if err := w.Add(&kv.Entry{Key: keyOf(i), Value: value, Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}); err != nil {
			return nil, err
		}
	}
	if _, err := w.Finish(); err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return t, t.findBlocks(keys, size)
}

// keyOf returns key i; they are in order, and alike only in their first bytes.
func keyOf(i int) []byte {
	key := binary.BigEndian.AppendUint64(nil, uint64(i)<<32)
	return binary.BigEndian.AppendUint64(key, uint64(i)*0x9e3779b97f4a7c15)
}

// findBlocks reads all keys in order: each miss of a cache that drops nothing is a
// block that was not there before.
func (t *table) findBlocks(keys int, size int64) error {
	c := sstable.NewCache(2 * size)
	return t.open(c, func(r *sstable.Reader) error {
		for i := range keys {
			if err := get(r, i); err != nil {
				return err
			}
			if misses := int(c.Stats().Misses); misses > t.blocks {
				t.blocks = misses
				t.first = append(t.first, int32(i))
			}
			t.blockOf = append(t.blockOf, int32(t.blocks-1))
		}
		t.blockBytes = c.Stats().Bytes / int64(t.blocks)
		return nil
	})
}

// open calls read with a reader of the file.
func (t *table) open(c *sstable.Cache, read func(*sstable.Reader) error) error {
	f, err := t.fs.Open(tableName)
	if err != nil {
		return err
	}
	r, err := sstable.Open(f, tableID, c)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(read(r), r.Close())
}

// replay returns the share of the counted reads that a cache with room for so many
// blocks served.
func (t *table) replay(steps []step, blocks int) (ratio float64, err error) {
	c := sstable.NewCache(int64(blocks) * t.blockBytes)
	err = t.open(c, func(r *sstable.Reader) error {
		var not sstable.CacheStats // what the first half and the scans count
		for i, s := range steps {
			if i == len(steps)/2 {
				not = c.Stats()
			}
			if !s.scan {
				if err := get(r, int(s.key)); err != nil {
					return err
				}
				continue
			}
			before := c.Stats()
			if err := t.scan(r, s.byGets); err != nil {
				return err
			}
			after := c.Stats()
			not.Hits += after.Hits - before.Hits
			not.Misses += after.Misses - before.Misses
		}
		end := c.Stats()
		hits, misses := end.Hits-not.Hits, end.Misses-not.Misses
		ratio = float64(hits) / float64(hits+misses)
		return nil
	})
	return ratio, err
}

func (t *table) scan(r *sstable.Reader, byGets bool) error {
	if byGets {
		for _, key := range t.first {
			if err := get(r, int(key)); err != nil {
				return err
			}
		}
		return nil
	}
	it := r.NewIterator(sstable.IterOptions{FillCache: true})
	for ok := it.First(); ok; ok = it.Next() {
	}
	return it.Close() // Err, if there was one
}

func get(r *sstable.Reader, i int) error {
	key := keyOf(i)
	q := sstable.Query{Key: key, Hash: keyhash.Sum(key), At: kv.MaxSeqNum}
	if r.Get(&q); q.Err != nil {
		return q.Err
	}
	if !q.Done {
		return fmt.Errorf("key %d is missing", i)
	}
	return nil
}
