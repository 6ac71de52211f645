package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Iterator implements kv.Filler over one file. It is in one block at a time,
// in which it goes forward entry by entry, and backward by restart intervals
// (backward.go). The blocks come from readahead.go.
type Iterator struct {
	r    *Reader
	o    IterOptions
	walk direction

	block    block
	blockAt  int       // number of the block that the iterator is in
	start    int       // position of the entry that was read last
	next     int       // position of the entry behind the one that was read last
	key      []byte    // of the entry that was read last
	entry    kv.Entry  // of a forward walk
	at       *kv.Entry // where the walk stands: entry, or one of interval
	valid    bool
	err      error
	closed   bool
	interval *interval // of a backward walk; nil before the first one
	ahead    readahead
	loads    int // blocks since the walk began
}

// direction is which way a walk goes.
type direction uint8

const (
	nowhere direction = iota
	forward
	backward
)

var _ kv.Filler = (*Iterator)(nil)

// NewIterator returns an iterator over all entries of the file, range tombstones
// included, each at its start. It must be closed before the reader.
//
// The slices of an entry are borrowed until the next move. A value that is apart is
// not read: the entry says where it is, and that is well formed. Every block is
// verified when the iterator reaches it; behind damage, Valid is false and Err
// names file and offset.
// Cost: a backward walk decodes each restart interval once, forward, and then
// steps through what it kept of it.
func (r *Reader) NewIterator(o IterOptions) kv.Iterator {
	it := &Iterator{}
	it.Init(r, o)
	return it
}

// Init makes it a new iterator, as NewIterator does, in the memory of one that was
// closed or never used.
func (it *Iterator) Init(r *Reader, o IterOptions) {
	if o.Readahead <= 0 {
		o.Readahead = defaultReadahead
	}
	*it = Iterator{r: r, o: o, key: it.key[:0], interval: it.interval}
	it.at = &it.entry
}

func (it *Iterator) Valid() bool      { return it.valid }
func (it *Iterator) Entry() *kv.Entry { return it.at }
func (it *Iterator) Err() error       { return it.err }

func (it *Iterator) Close() error {
	if !it.closed {
		it.closed, it.valid = true, false
		it.ahead, it.block, it.interval = readahead{}, block{}, nil
	}
	return it.err
}

func (it *Iterator) First() bool {
	it.ahead.bytes = it.o.Readahead
	return it.begin(forward) && it.enter(0) && it.step()
}

func (it *Iterator) SeekGE(key []byte) bool {
	it.ahead.bytes = 0
	if !it.begin(forward) || !it.enter(it.r.index.find(key, kv.MaxSeqNum)) {
		return false
	}
	_, at, ok := it.block.restartBefore(key, kv.MaxSeqNum)
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

func (it *Iterator) Next() bool {
	if it.walk == backward {
		panic("sstable: Next on a backward walk")
	}
	return it.valid && it.step()
}

// begin forgets where the iterator stood, for a new walk.
func (it *Iterator) begin(walk direction) bool {
	it.valid, it.walk, it.at, it.loads = false, walk, &it.entry, 0
	if it.closed {
		it.err = fmt.Errorf("iterator of sstable %s: %w", it.r.file.Name(), kv.ErrClosed)
		return false
	}
	it.err = nil
	return true
}

func (it *Iterator) fail(err error) bool {
	it.valid, it.err = false, err
	return false
}

func (it *Iterator) malformed() bool { return it.fail(it.r.malformed(it.blockAt)) }

// step moves to the entry at next, which may be the first of the next block.
func (it *Iterator) step() bool {
	if it.next < it.block.limit {
		return it.read(&it.entry)
	}
	return it.enter(it.blockAt+1) && it.read(&it.entry)
}

// enter makes block i the current one and stands before its first entry. It
// reports false behind the last block and on errors.
func (it *Iterator) enter(i int) bool {
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

// read decodes the entry at next, whose key begins like that of the entry
// before it, and stands there.
// REQUIRES: next <= block.limit.
func (it *Iterator) read(e *kv.Entry) bool {
	p := it.block.data[it.next:it.block.limit]
	if len(p) < minEntryBytes || p[0]|p[1]|p[2] >= 0x80 {
		return it.readAny(e)
	}
	// Lengths of one byte each: of most entries, and worth the shorter way.
	shared, keyEnd := int(p[0]), minEntryBytes+int(p[1])
	end := keyEnd + int(p[2])
	seq, kind := kv.SplitTrailer(binary.LittleEndian.Uint64(p[3:]))
	if shared > len(it.key) || end > len(p) || !kind.Valid() || seq == 0 {
		return it.readAny(e) // an expiry follows, the value is apart, or the entry is malformed
	}
	it.start = it.next
	it.key = append(it.key[:shared], p[minEntryBytes:keyEnd]...)
	e.Key, e.Value = it.key, p[keyEnd:end:end]
	if kind == kv.KindDelete {
		e.Value = nil
	}
	e.Seq, e.Kind, e.Apart, e.Expiry = seq, kind, false, 0
	it.next += end
	it.valid = true
	return true
}

// readAny does what read does, for any entry.
func (it *Iterator) readAny(e *kv.Entry) bool {
	var h header
	if !it.block.header(it.next, &h) || h.shared > len(it.key) {
		return it.malformed()
	}
	it.start = it.next
	it.key = append(it.key[:h.shared], it.block.keyBytes(&h)...)
	e.Key, e.Value = it.key, nil
	if h.kind != kv.KindDelete {
		e.Value = it.block.valueBytes(&h)
	}
	e.Seq, e.Kind, e.Apart, e.Expiry = h.seq, h.kind, h.apart, h.expiry
	if _, ok := kv.ParseValuePointer(e.Value); h.apart && !ok {
		return it.malformed()
	}
	it.next = h.end
	it.valid = true
	return true
}
