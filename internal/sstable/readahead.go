package sstable

import "bytes"

// defaultReadahead is what a long walk reads at once. Guessed: a disk reaches its
// full sequential speed with it, and the 2 x 10 such buffers of a merge are small.
const defaultReadahead = 256 << 10

// longWalk is the number of blocks after which a walk counts as long. Guessed: a page of
// results is shorter, and a walk 100 times as long has 99 % of its blocks after them.
const longWalk = 16

// IterOptions shape an iterator. The zero value suits compaction.
type IterOptions struct {
	// FillCache puts the blocks that are read into the cache, for scans that callers may
	// repeat. After longWalk blocks a walk uses only free room of the cache, drops
	// nothing, and counts no uses.
	FillCache bool
	// Readahead is how many bytes one read fetches once the walk is known to be
	// sequential: at once from First or Last, growing from one block after SeekGE and
	// SeekLT. Default 256 KiB. A block is always read whole.
	Readahead int
}

// readahead is the blocks that the last read of an iterator fetched: those that
// the walk needs now and next, in either direction.
type readahead struct {
	bytes      int    // limit of the next read
	buf        []byte // blocks first up to end, sealed
	first, end int
}

// load returns block i from the cache, from the readahead buffer, or from the
// file.
func (it *Iterator) load(i int) (block, error) {
	var contents []byte
	if it.loads++; it.o.FillCache && it.loads <= longWalk {
		contents = it.r.cache.lookup(i)
	} else {
		contents = it.r.cache.peek(i)
	}
	if it.cached = contents != nil; it.cached {
		return cachedBlock(contents), nil
	}
	a := &it.ahead
	if i < a.first || i >= a.end {
		if err := it.readAhead(i); err != nil {
			return block{}, err
		}
	}
	start, _ := it.r.index.span(a.first, a.first)
	offset, length := it.r.index.span(i, i)
	sealed := a.buf[offset-start:][:length:length]
	keep := it.o.FillCache && (it.loads <= longWalk || it.r.cache.spare(i, length))
	if keep { // the next read overwrites the buffer
		sealed = bytes.Clone(sealed)
	}
	b, err := it.r.openBlock(i, sealed)
	if err == nil && keep {
		it.r.cache.insert(i, b.data)
	}
	return b, err
}

// readAhead reads block i and the blocks that the walk reaches next, up to
// ahead.bytes.
func (it *Iterator) readAhead(i int) error {
	a := &it.ahead
	first, last := it.aheadOf(i)
	_, length := it.r.index.span(first, last)
	a.bytes = min(max(2*a.bytes, 2*length), it.o.Readahead)
	err := it.fetch(first, last)
	if err != nil && first < last { // the error may concern a later block
		return it.fetch(i, i)
	}
	return err
}

// aheadOf returns the blocks that one read at block i fetches.
func (it *Iterator) aheadOf(i int) (first, last int) {
	first, last = i, i
	for {
		f, l := first, last+1
		if it.walk == backward {
			f, l = first-1, last
		}
		if f < 0 || l == it.r.index.blocks() {
			return first, last
		}
		if _, length := it.r.index.span(f, l); length > it.ahead.bytes {
			return first, last
		}
		first, last = f, l
	}
}

// fetch reads blocks first to last into the buffer.
func (it *Iterator) fetch(first, last int) error {
	a := &it.ahead
	offset, length := it.r.index.span(first, last)
	a.first, a.end = 0, 0
	if cap(a.buf) < length {
		a.buf = make([]byte, length)
	}
	a.buf = a.buf[:length]
	if err := it.r.readAt(a.buf, offset); err != nil {
		return err
	}
	a.first, a.end = first, last+1
	return nil
}
