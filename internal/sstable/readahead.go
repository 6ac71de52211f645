package sstable

import "bytes"

// defaultReadahead is what a long walk reads at once. Guessed: a disk is at its
// full sequential speed there, and 2 x 10 such buffers in a merge are small.
const defaultReadahead = 256 << 10

// longWalk is the blocks behind which a walk counts as a long one. Guessed: a page of
// results is less, and a walk that goes on has 99 % of its blocks behind them.
const longWalk = 16

// IterOptions shape an iterator. The zero value suits compaction.
type IterOptions struct {
	// FillCache puts the blocks that are read into the cache: for scans that
	// callers may repeat. A long walk takes from then on only room that nobody uses,
	// and leaves no trace on what is cached: it drops nothing that point reads need.
	FillCache bool
	// Readahead is the bytes that one read fetches once the walk has shown to be
	// sequential: from First or Last on at once, behind SeekGE and SeekLT growing
	// from one block. Default 256 KiB. A block is always read whole.
	Readahead int
}

// readahead is the blocks that the last read of an iterator fetched: those that
// the walk needs now and next, in either direction.
type readahead struct {
	bytes      int    // that the next read may fetch
	buf        []byte // blocks first up to end, sealed
	first, end int
}

// load returns block i from the cache, from what was read ahead, or from the
// file.
func (it *Iterator) load(i int) (block, error) {
	var contents []byte
	if it.loads++; it.o.FillCache && it.loads <= longWalk {
		contents = it.r.cache.lookup(i)
	} else {
		contents = it.r.cache.peek(i)
	}
	if it.cached = contents != nil; it.cached {
		b, _ := parseBlock(contents) // it is one, or would not be there
		return b, nil
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
	if keep { // the buffer will be used again
		sealed = bytes.Clone(sealed)
	}
	b, err := it.r.openBlock(i, sealed)
	if err == nil && keep {
		it.r.cache.insert(i, b.data)
	}
	return b, err
}

// readAhead reads block i and those that the walk comes to next, as many as
// ahead.bytes admits.
func (it *Iterator) readAhead(i int) error {
	a := &it.ahead
	first, last := it.aheadOf(i)
	_, length := it.r.index.span(first, last)
	a.bytes = min(max(2*a.bytes, 2*length), it.o.Readahead)
	err := it.fetch(first, last)
	if err != nil && first < last { // it may be that of a block further on
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

// fetch reads blocks first up to last into the buffer.
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
