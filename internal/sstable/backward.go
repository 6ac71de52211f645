package sstable

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// interval is the entries from one restart point up to the next. An entry
// spells out its key only from where it differs from the one before it, so a
// backward walk reads an interval forward and keeps what it met.
type interval struct {
	restart int // its number in the block
	left    int // entries before the one that the walk stands at
	entries [restartInterval]kv.Entry
	keys    []byte // of the entries; their values are in the block
	touched byte   // what fetch read, so that the reads are not optimized away
}

func (it *Iterator) Last() bool {
	it.ahead.bytes = it.o.Readahead
	return it.beginBack() && it.enterEnd(it.r.index.blocks()-1) && it.stepBack()
}

func (it *Iterator) SeekLT(key []byte) bool {
	it.ahead.bytes = 0
	if !it.beginBack() {
		return false
	}
	i := it.r.index.find(key, kv.MaxSeqNum)
	if i == it.r.index.blocks() {
		return it.enterEnd(i-1) && it.stepBack()
	}
	// The first entry not before key is in block i, so the one sought is the last
	// before it there, or the last of the block before.
	if !it.enter(i) {
		return false
	}
	restart, _, ok := it.block.restartBefore(key, kv.MaxSeqNum)
	if !ok {
		return it.malformed()
	}
	if !it.readInterval(restart) {
		return false
	}
	for v := it.interval; v.left > 0 && bytes.Compare(v.entries[v.left-1].Key, key) >= 0; {
		v.left--
	}
	return it.stepBack()
}

func (it *Iterator) Prev() bool {
	if it.walk == forward {
		panic("sstable: Prev on a forward walk")
	}
	return it.valid && it.stepBack()
}

func (it *Iterator) beginBack() bool {
	if it.interval == nil {
		it.interval = new(interval)
	}
	return it.begin(backward)
}

// stepBack moves to the entry before the one that the walk stands at, which may
// be the last one of the interval or the block before.
func (it *Iterator) stepBack() bool {
	v := it.interval
	if v.left == 0 && !it.intervalBefore() {
		return false
	}
	v.left--
	it.at = &v.entries[v.left]
	it.valid = true
	return true
}

// intervalBefore reads the interval before the current one. It reports false
// before the first one and on errors.
func (it *Iterator) intervalBefore() bool {
	it.valid = false
	if it.interval.restart > 0 {
		return it.readInterval(it.interval.restart - 1)
	}
	return it.blockAt > 0 && it.enterEnd(it.blockAt-1)
}

// enterEnd makes block i the current one and stands behind its last entry.
func (it *Iterator) enterEnd(i int) bool {
	if !it.enter(i) {
		return false
	}
	it.interval.touched += it.block.fetch()
	return it.readInterval(it.block.restarts - 1)
}

// readInterval reads an interval of the current block and stands behind its last
// entry. It reports false on errors.
//
// The intervals of a block must fill it without a gap: an entry that a forward
// walk meets is not passed over by a backward one.
func (it *Iterator) readInterval(restart int) bool {
	at, end, ok := it.block.interval(restart)
	if !ok {
		return it.malformed()
	}
	v := it.interval
	v.restart, v.left, v.keys = restart, 0, v.keys[:0]
	it.next, it.key = at, it.key[:0]
	for it.next < end {
		if v.left == restartInterval {
			return it.malformed()
		}
		e := &v.entries[v.left]
		if !it.read(e) {
			return false
		}
		from := len(v.keys)
		v.keys = append(v.keys, it.key...)
		e.Key = v.keys[from:len(v.keys):len(v.keys)]
		v.left++
	}
	return it.next == end || it.malformed()
}
