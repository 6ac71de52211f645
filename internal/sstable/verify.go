package sstable

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// maxVerifyErrors bounds what Verify reports of one file.
const maxVerifyErrors = 64

// Verify reads every byte of the file again, bypassing the cache, and checks every
// checksum, the order of the entries, and that filter, index, range tombstones
// and properties agree with them. It continues after damage.
//
// After each block Verify passes the number of bytes read to progress, if not nil, which
// may block to slow Verify down. Verify ends early when ctx ends, with its error.
// Errors: all *kv.CorruptionError that were found (at most 64), joined, or what
// a read returned.
func (r *Reader) Verify(ctx context.Context, progress func(bytes int64)) error {
	if progress == nil {
		progress = func(int64) {}
	}
	c := checker{r: &Reader{file: r.file, identity: r.identity}}
	if err := c.r.open(r.footer.id); err != nil {
		c.errs = append(c.errs, err)
		c.incomplete = true
		c.r.footer, c.r.meta = r.footer, r.meta // the copies in memory were verified by Open
		c.r.filter, c.r.index, c.r.ranges = r.filter, r.index, r.ranges
	}
	progress(int64(r.footer.tailSize() + footerBytes))

	it := Iterator{r: c.r, o: IterOptions{Readahead: defaultReadahead}, ahead: readahead{bytes: defaultReadahead}}
	for i := range c.r.index.blocks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if it.enter(i) {
			c.block(&it, i)
		} else {
			c.report(it.err)
		}
		_, length := c.r.index.span(i, i)
		progress(int64(length))
		if len(c.errs) >= maxVerifyErrors {
			return errors.Join(c.errs...)
		}
	}
	if !c.incomplete {
		c.totals()
	}
	return errors.Join(c.errs...)
}

// checker is the state of Verify.
type checker struct {
	r          *Reader
	errs       []error
	incomplete bool // something was not read, so totals prove nothing
	last       position
	census     census
	padding    uint64
}

func (c *checker) report(err error) {
	c.errs = append(c.errs, err)
	c.incomplete = true
	c.last = position{}
}

func (c *checker) corrupt(reason string) { c.report(kv.Corruptf(c.r.file.Name(), -1, "%s", reason)) }

func (c *checker) corruptBlock(i int, reason string) { c.report(c.r.corruptBlock(i, reason)) }

// block checks the entries of data block i; it is positioned before them.
func (c *checker) block(it *Iterator, i int) {
	fields, separator := c.r.index.fields(i), c.r.index.separator(i)
	c.padding += uint64(len(it.block.padding()))
	for n := range it.block.entries {
		if !it.read(n) {
			c.report(it.err)
			return
		}
		e := &it.entry
		relation, hash := c.last.relation(e), keyhash.Sum(e.Key)
		switch {
		case relation == outOfOrder:
			c.corruptBlock(i, "entries are out of order")
			return
		case kv.Compare(e.Key, e.Seq, separator, fields.seq) > 0:
			c.corruptBlock(i, "an entry orders after the separator of its block")
			return
		case n == 0 && i > 0 && c.r.index.find(e.Key, e.Seq) != i:
			c.corruptBlock(i, "the index leads to another block")
			return
		case !c.r.filter.mayContain(hash):
			c.corruptBlock(i, "the filter lacks a key")
			return
		case it.block.data[it.block.fingerprints+n] != fingerprint(hash):
			c.corruptBlock(i, "a fingerprint is not that of its key")
			return
		}
		c.last.move(e, relation)
		c.census.add(e, relation)
	}
	if uint64(it.block.entries) != fields.entries {
		c.corruptBlock(i, "the index counts other entries than the block has")
	}
}

// totals compares the counts with the properties of the file.
func (c *checker) totals() {
	c.census.end(c.last.key)
	m, want := &c.census.meta, &c.r.meta
	if m.Entries != want.Entries || m.Deletes != want.Deletes || m.MinSeq != want.MinSeq || m.MaxSeq != want.MaxSeq ||
		!bytes.Equal(m.Smallest, want.Smallest) || !bytes.Equal(m.Largest, want.Largest) || !slices.Equal(m.Values, want.Values) {
		c.corrupt("properties differ from the entries")
	}
	if c.padding != c.r.padding {
		c.corrupt("the properties count other bytes of padding than the blocks have")
	}
	if c.r.footer.version >= formatStats && !sameStats(&c.census.stats.stats, &c.r.stats) {
		c.corrupt("what the properties say of expiry and old versions differs from the entries")
	}
	sameRange := func(a, b kv.Entry) bool {
		return a.Seq == b.Seq && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
	}
	tombstones := kv.NewRangeTombstones(c.census.tombstones)
	if !slices.EqualFunc(tombstones.All(), c.r.ranges.All(), sameRange) {
		c.corrupt("range tombstones differ from the entries")
	}
}
