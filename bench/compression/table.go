package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// spy sees what is read from a file.
type spy struct {
	vfs.File
	saw func(p []byte)
}

func (s spy) ReadAt(p []byte, offset int64) (int, error) {
	n, err := s.File.ReadAt(p, offset)
	s.saw(p[:n])
	return n, err
}

// blockTrailer is the bytes behind the contents of a block.
const blockTrailer = 5

var tableID = kv.FileID{Partition: 1, Num: 1}

// blocks is the data blocks of a table; the note says what a Get takes.
func blocks(t *trial, entries []kv.Entry, size int) (c corpus, err error) {
	name := filepath.Join(t.dir, "000001.sst")
	f, err := vfs.OS.Create(name)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close(), vfs.OS.Remove(name)) }()
	if err := writeTable(f, entries, size); err != nil {
		return c, err
	}
	if c.pieces, err = blocksOf(name, entries); err != nil {
		return c, err
	}
	read, err := getTime(name, entries, nil, t.rounds)
	if err != nil {
		return c, err
	}
	hit, err := getTime(name, entries, sstable.NewCache(cacheBytes), t.rounds)
	c.note = fmt.Sprintf("a Get takes %.2f us from the page cache, %.2f from the block cache", micros(read), micros(hit))
	return c, err
}

func writeTable(f vfs.File, entries []kv.Entry, size int) error {
	w := sstable.NewWriter(f, tableID, sstable.WriterOptions{BlockBytes: size})
	for i := range entries {
		if err := w.Add(&entries[i]); err != nil {
			return err
		}
	}
	_, err := w.Finish()
	return err
}

// blocksOf returns the contents of the data blocks: without a cache, what the Gets of
// all keys read.
func blocksOf(name string, entries []kv.Entry) (blocks [][]byte, err error) {
	f, err := vfs.OS.Open(name)
	if err != nil {
		return nil, err
	}
	var getting bool
	var last []byte
	r, err := sstable.Open(spy{f, func(p []byte) {
		if getting && !bytes.Equal(p, last) {
			last = bytes.Clone(p)
			blocks = append(blocks, last[:len(last)-blockTrailer])
		}
	}}, tableID, nil)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	getting = true
	for i := range entries {
		if err := get(r, entries[i].Key); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

const (
	cacheBytes = 64 << 20 // room for any of the tables
	gets       = 4 << 10  // that are timed: a few of each block
)

// getTime returns what a Get of a random key takes once its block was read.
func getTime(name string, entries []kv.Entry, cache *sstable.Cache, rounds int) (took time.Duration, err error) {
	f, err := vfs.OS.Open(name)
	if err != nil {
		return 0, err
	}
	r, err := sstable.Open(f, tableID, cache)
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	order := rand.New(rand.NewPCG(2, 2)).Perm(len(entries))
	order = order[:min(len(order), gets)]
	all := func() {
		for _, i := range order {
			err = errors.Join(err, get(r, entries[i].Key))
		}
	}
	all()
	times := make([]time.Duration, rounds)
	for i := range times {
		times[i] = threadTime(all)
	}
	return median(times) / time.Duration(len(order)), err
}

func get(r *sstable.Reader, key []byte) error {
	q := sstable.Query{Key: key, Hash: keyhash.Sum(key), At: kv.MaxSeqNum}
	if r.Get(&q); q.Err != nil {
		return q.Err
	}
	if !q.Done {
		return fmt.Errorf("key %q is missing", key)
	}
	return nil
}
