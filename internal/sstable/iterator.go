package sstable

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// Iterator implements scanbatch.Filler over one file. It is in one block at a time, in which
// it goes entry by entry (backward.go: the other way). readahead.go loads the blocks.
type Iterator struct {
	r    *Reader
	o    IterOptions
	walk direction

	block   block
	cached  bool     // block came from the cache, so it never changes
	blockAt int      // number of the current block
	at      int      // number of the entry read last, or of the one before the position
	key     []byte   // the key of that entry, if the block has a prefix
	entry   kv.Entry // that entry
	valid   bool
	err     error
	closed  bool
	ahead   readahead
	loads   int    // blocks since the walk began
	touched byte   // sum of what touchAll read, so that the compiler keeps the reads
	before  []byte // scratch of Fill: the last key of the previous block
}

// direction of a walk.
type direction uint8

const (
	nowhere direction = iota
	forward
	backward
)

var _ scanbatch.Filler = (*Iterator)(nil)

// NewIterator returns an iterator over all entries of the file, range tombstones
// included, each at its start. It must be closed before the reader.
//
// The slices of an entry are borrowed until the next move. A separated value is not
// read: the entry holds its pointer, which is well formed. Every block is verified
// when the iterator reaches it; at damage, Valid becomes false and Err names file and
// offset.
func (r *Reader) NewIterator(o IterOptions) kv.Iterator {
	it := &Iterator{}
	it.Init(r, o)
	return it
}

// Init makes it a new iterator, as NewIterator does, reusing the memory of one that was
// closed or never used.
func (it *Iterator) Init(r *Reader, o IterOptions) {
	if o.Readahead <= 0 {
		o.Readahead = defaultReadahead
	}
	*it = Iterator{r: r, o: o, key: it.key[:0], before: it.before[:0]}
}

func (it *Iterator) Valid() bool      { return it.valid }
func (it *Iterator) Entry() *kv.Entry { return &it.entry }
func (it *Iterator) Err() error       { return it.err }

func (it *Iterator) Close() error {
	if !it.closed {
		it.closed, it.valid = true, false
		it.ahead, it.block = readahead{}, block{}
	}
	return it.err
}

func (it *Iterator) First() bool {
	it.ahead.bytes = it.o.Readahead
	return it.begin(forward) && it.enter(0) && it.step()
}

func (it *Iterator) SeekGE(key []byte) bool {
	it.ahead.bytes = 0
	if !it.begin(forward) || !it.enter(it.r.index.find(key, kv.MaxSeqNum)) || !it.seek(key) {
		return false
	}
	it.at--
	return it.step()
}

// seek positions at the first entry of the block whose key is >= key, or after the
// last one, without decoding it.
func (it *Iterator) seek(key []byte) (ok bool) {
	it.at, ok = it.block.seek(key)
	return ok || it.malformed()
}

func (it *Iterator) Next() bool {
	if it.walk == backward {
		panic("sstable: Next on a backward walk")
	}
	return it.valid && it.step()
}

// begin resets the position for a new walk.
func (it *Iterator) begin(walk direction) bool {
	it.valid, it.walk, it.loads = false, walk, 0
	if it.closed {
		it.err = fmt.Errorf("iterator of sstable %s: %w", it.r.file.Name(), kv.ErrClosed)
		return false
	}
	it.err = it.r.damage
	return it.err == nil
}

func (it *Iterator) fail(err error) bool {
	it.valid, it.err = false, err
	return false
}

func (it *Iterator) malformed() bool { return it.fail(it.r.malformed(it.blockAt)) }

// step moves to the entry after the one that was read last, which may be the first
// of the next block.
func (it *Iterator) step() bool {
	if it.at+1 < it.block.entries {
		return it.read(it.at + 1)
	}
	return it.enter(it.blockAt+1) && it.read(0)
}

// enter makes block i the current one and positions before its first entry. It
// reports false after the last block and on errors.
func (it *Iterator) enter(i int) bool {
	it.valid = false
	it.blockAt, it.at, it.key = i, -1, it.key[:0]
	it.block = block{}
	if i >= it.r.index.blocks() {
		return false
	}
	b, err := it.load(i)
	if err != nil {
		return it.fail(err)
	}
	it.block, it.key = b, append(it.key, b.prefix()...)
	return true
}

// read decodes entry i of the block and makes it the current one.
func (it *Iterator) read(i int) bool {
	var h header
	b := &it.block
	if !b.header(i, &h) {
		return it.malformed()
	}
	it.at, it.valid = i, true
	e := &it.entry
	e.Key, e.Value = b.suffix(&h), nil
	if n := len(b.prefix()); n > 0 {
		it.key = append(it.key[:n], e.Key...)
		e.Key = it.key
	}
	if h.kind != kv.KindDelete {
		e.Value = b.value(&h)
	}
	e.Seq, e.Kind, e.Apart, e.Expiry = h.seq, h.kind, h.apart, h.expiry
	if h.apart {
		if _, ok := kv.ParseValuePointer(e.Value); !ok {
			return it.malformed()
		}
	}
	return true
}
