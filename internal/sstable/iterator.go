package sstable

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// defaultReadahead is what a long walk reads at once. Guessed: a disk is at its
// full sequential speed there, and 2 x 10 such buffers in a merge are small.
const defaultReadahead = 256 << 10

// IterOptions shape an iterator. The zero value suits compaction.
type IterOptions struct {
	// FillCache puts the blocks that are read into the cache: for scans that
	// callers may repeat.
	FillCache bool
	// Readahead is the bytes that one read fetches once the walk has shown to be
	// sequential: from First on at once, behind SeekGE growing from one block.
	// Default 256 KiB. A block is always read whole.
	Readahead int
}

// iterator implements kv.Iterator over one file. It owns one buffer of read
// ahead blocks.
type iterator struct {
	r *Reader
	o IterOptions

	block    block
	blockAt  int // number of the block that the iterator is in
	next     int // position of the entry behind the current one
	key      []byte
	entry    kv.Entry
	valid    bool
	err      error
	closed   bool
	readNext int // bytes that the next read may fetch

	ahead      []byte // blocks aheadFirst up to aheadEnd, sealed
	aheadFirst int
	aheadEnd   int
}

// NewIterator returns an iterator over all entries of the file, range tombstones
// included, each at its start. It must be closed before the reader.
//
// The slices of an entry are borrowed until the next move. Every block is
// verified when the iterator reaches it; behind damage, Valid is false and Err
// names file and offset.
func (r *Reader) NewIterator(o IterOptions) kv.Iterator {
	if o.Readahead <= 0 {
		o.Readahead = defaultReadahead
	}
	return &iterator{r: r, o: o}
}

func (it *iterator) Valid() bool      { return it.valid }
func (it *iterator) Entry() *kv.Entry { return &it.entry }
func (it *iterator) Err() error       { return it.err }

func (it *iterator) Close() error {
	if !it.closed {
		it.closed, it.valid = true, false
		it.ahead, it.block = nil, block{}
	}
	return it.err
}

func (it *iterator) First() bool {
	it.readNext = it.o.Readahead
	return it.begin() && it.enter(0) && it.step()
}

func (it *iterator) SeekGE(key []byte) bool {
	it.readNext = 0
	i := it.r.index.find(key, kv.MaxSeqNum)
	if !it.begin() || !it.enter(i) {
		return false
	}
	at, ok := it.block.restartBefore(key, kv.MaxSeqNum)
	if !ok {
		return it.malformed()
	}
	it.next = at
	for it.step() {
		if bytes.Compare(it.entry.Key, key) >= 0 {
			return true
		}
	}
	return false
}

func (it *iterator) Next() bool { return it.valid && it.step() }

// begin forgets where the iterator stood, for a new First or SeekGE.
func (it *iterator) begin() bool {
	it.valid = false
	if it.closed {
		it.err = fmt.Errorf("iterator of sstable %s: %w", it.r.file.Name(), kv.ErrClosed)
		return false
	}
	it.err = nil
	return true
}

func (it *iterator) fail(err error) bool {
	it.valid, it.err = false, err
	return false
}

func (it *iterator) malformed() bool { return it.fail(it.r.malformed(it.blockAt)) }

// step moves to the entry at next, which may be the first of the next block.
func (it *iterator) step() bool {
	if it.next >= it.block.limit && !it.enter(it.blockAt+1) {
		return false
	}
	var h header
	if !it.block.header(it.next, &h) || h.shared > len(it.key) {
		return it.malformed()
	}
	it.key = append(it.key[:h.shared], it.block.keyBytes(&h)...)
	it.entry.Key = it.key
	it.entry.Value = nil
	if h.kind != kv.KindDelete {
		it.entry.Value = it.block.valueBytes(&h)
	}
	it.entry.Seq, it.entry.Kind, it.entry.Expiry = h.seq, h.kind, h.expiry
	it.next = h.end
	it.valid = true
	return true
}

// enter makes block i the current one and stands before its first entry. It
// reports false behind the last block and on errors.
func (it *iterator) enter(i int) bool {
	it.valid = false
	it.blockAt, it.next, it.key = i, 0, it.key[:0]
	it.block = block{}
	if i >= it.r.index.blocks() {
		return false
	}
	b, err := it.load(i)
	if err != nil {
		return it.fail(err)
	}
	it.block = b
	return true
}

// load returns block i from the cache, from what was read ahead, or from the
// file.
func (it *iterator) load(i int) (block, error) {
	if i < it.aheadFirst || i >= it.aheadEnd {
		find := it.r.cache.peek
		if it.o.FillCache {
			find = it.r.cache.lookup
		}
		if b, ok := find(i); ok {
			return b, nil
		}
		if err := it.readAhead(i); err != nil {
			return block{}, err
		}
	}
	start, _ := it.r.index.span(it.aheadFirst, it.aheadFirst)
	offset, length := it.r.index.span(i, i)
	sealed := it.ahead[offset-start:][:length:length]
	if it.o.FillCache { // the cache keeps it, the buffer will be used again
		sealed = bytes.Clone(sealed)
	}
	b, err := it.r.openBlock(i, sealed)
	if err == nil && it.o.FillCache {
		it.r.cache.insert(i, b)
	}
	return b, err
}

// readAhead reads block i and those behind it that readNext admits.
func (it *iterator) readAhead(i int) error {
	end := i + 1
	offset, length := it.r.index.span(i, i)
	for end < it.r.index.blocks() {
		_, n := it.r.index.span(i, end)
		if n > it.readNext {
			break
		}
		end, length = end+1, n
	}
	it.readNext = min(max(2*it.readNext, 2*length), it.o.Readahead)
	it.aheadFirst, it.aheadEnd = 0, 0
	if cap(it.ahead) < length {
		it.ahead = make([]byte, length)
	}
	it.ahead = it.ahead[:length]
	err := it.r.readAt(it.ahead, offset)
	if err != nil && end > i+1 { // it may be that of a block further on
		_, length = it.r.index.span(i, i)
		it.ahead, end = it.ahead[:length], i+1
		err = it.r.readAt(it.ahead, offset)
	}
	if err != nil {
		return err
	}
	it.aheadFirst, it.aheadEnd = i, end
	return nil
}
