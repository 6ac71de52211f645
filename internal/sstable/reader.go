package sstable

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Reader reads one sstable. Filter, index and range tombstones are verified by Open and
// stay in memory; a data block is verified each time it is read from the file.
//
// Safe for concurrent use. The caller calls Close after the last read has returned and
// the last iterator was closed.
type Reader struct {
	file     vfs.File
	identity identity
	footer   footer
	meta     kv.TableMeta
	stats    kv.TableStats
	padding  uint64 // bytes of padding in data blocks
	filter   filter
	index    index
	ranges   *kv.RangeTombstones // nil if there are none
	cache    fileCache
	slow     atomic.Bool // recent reads waited for the disk; only a hint
	damage   error       // every read fails with it: see Damaged; nil otherwise

	closeOnce sync.Once
	closeErr  error
}

// Open verifies everything in the file except the data blocks and returns a reader.
// The reader owns f, unless Open fails. The cache may be nil.
//
// Errors: a *kv.CorruptionError, also if the size of the file changed or the file
// belongs elsewhere; kv.ErrUnsupportedVersion if a newer kvd wrote it.
// Cost: two reads, memory for filter and index (about 2 % of the file).
func Open(f vfs.File, id kv.FileID, cache *Cache) (*Reader, error) {
	r := &Reader{file: f, identity: newIdentity(id)}
	if err := r.open(id); err != nil {
		return nil, fmt.Errorf("open sstable %s: %w", f.Name(), err)
	}
	r.slow.Store(true)
	r.cache.init(cache, &r.index)
	return r, nil
}

func (r *Reader) open(id kv.FileID) error {
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	end := make([]byte, min(size, maxFooterBytes))
	if err := r.readAt(end, size-int64(len(end))); err != nil {
		return err
	}
	footer, reason, err := parseFooter(end, uint64(size))
	if err != nil {
		return err
	}
	if reason != "" {
		return kv.Corruptf(r.file.Name(), max(size-footerBytes, 0), "%s", reason)
	}
	if footer.id != id {
		return kv.Corruptf(r.file.Name(), size-footerBytes, "it is file %d of partition %d, not file %d of partition %d",
			footer.id.Num, footer.id.Partition, id.Num, id.Partition)
	}
	r.footer = footer
	tail := make([]byte, footer.tailSize())
	if err := r.readAt(tail, int64(footer.data)); err != nil {
		return err
	}
	return r.parseTail(tail)
}

// parseTail verifies and keeps the blocks between the data and the footer.
func (r *Reader) parseTail(tail []byte) error {
	var hash string
	parts := [...]struct {
		kind   blockKind
		length uint64
		parse  func(contents []byte) (ok bool)
	}{
		{kindFilter, r.footer.filter, func(contents []byte) (ok bool) {
			r.filter, ok = parseFilter(contents)
			return ok
		}},
		{kindIndex, r.footer.index, func(contents []byte) (ok bool) {
			r.index, ok = parseIndex(contents, r.footer.data)
			return ok
		}},
		{kindRanges, r.footer.ranges, func(contents []byte) (ok bool) {
			r.ranges, ok = parseRanges(contents)
			return ok
		}},
		{kindProperties, r.footer.properties, func(contents []byte) (ok bool) {
			hash, r.padding, ok = parseProperties(contents, r.footer.version, &r.meta, &r.stats)
			return ok
		}},
	}
	offset := int64(r.footer.data)
	for _, p := range parts {
		if p.kind == kindRanges && p.length == 0 {
			continue // there are none
		}
		contents, reason := r.identity.unseal(tail[:p.length], p.kind, offset)
		if reason == "" && !p.parse(contents) {
			reason = p.kind.String() + " malformed"
		}
		if reason != "" {
			return kv.Corruptf(r.file.Name(), offset, "%s", reason)
		}
		tail, offset = tail[p.length:], offset+int64(p.length)
	}
	if hash != keyhash.Name {
		return fmt.Errorf("%w: keys hashed with %q, this kvd uses %q", kv.ErrUnsupportedVersion, hash, keyhash.Name)
	}
	r.meta.Num, r.meta.Size = r.footer.id.Num, r.footer.fileSize()
	return nil
}

// Meta describes the contents of the file. Its slices are immutable. Largest is the last
// key, or the reach of a range tombstone if that is larger: its end or, if the end has a
// trailing zero byte, the key directly before the end.
func (r *Reader) Meta() kv.TableMeta { return r.meta }

// Stats returns what the writer recorded for merges; empty for a file of version 3.
func (r *Reader) Stats() kv.TableStats { return r.stats }

// Padding returns how many bytes of the file are padding, which keeps blocks within pages.
func (r *Reader) Padding() uint64 { return r.padding }

// MayContain reports false only if the file has no entry at a key of this hash.
// It ignores range tombstones.
func (r *Reader) MayContain(hash uint64) bool { return r.filter.mayContain(hash) }

// RangeTombstones returns the range tombstones of the file, nil if there are
// none. An iterator returns each one at its start; a caller that begins later needs
// the earlier ones from here. They remain valid after Close.
func (r *Reader) RangeTombstones() *kv.RangeTombstones { return r.ranges }

// Close releases the cached blocks and the file. It is idempotent.
func (r *Reader) Close() error {
	r.closeOnce.Do(func() {
		r.cache.evict()
		if err := r.file.Close(); err != nil {
			r.closeErr = fmt.Errorf("close sstable %s: %w", r.file.Name(), err)
		}
	})
	return r.closeErr
}

// readAt fills p from offset. A file that ends early is damage, not io.EOF.
func (r *Reader) readAt(p []byte, offset int64) error {
	n, err := r.file.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return kv.Corruptf(r.file.Name(), offset, "file ends early: %d of %d bytes are there", n, len(p))
	}
	return fmt.Errorf("read sstable %s at offset %d: %w", r.file.Name(), offset, err)
}

// readBlock returns data block i from the cache or the file, and caches it.
func (r *Reader) readBlock(i int) (block, error) {
	if contents := r.cache.lookup(i); contents != nil {
		return cachedBlock(contents), nil
	}
	b, err := r.fetchBlock(i)
	if err == nil {
		r.cache.insert(i, b.data)
	}
	return b, err
}

// fetchBlock returns data block i from the file, in newly allocated memory.
func (r *Reader) fetchBlock(i int) (block, error) {
	offset, length := r.index.span(i, i)
	sealed := make([]byte, length)
	if err := r.readAt(sealed, offset); err != nil {
		return block{}, r.boundKeys(i, err)
	}
	return r.openBlock(i, sealed)
}

// boundKeys adds the bounds of the keys of data block i to damage found there.
func (r *Reader) boundKeys(i int, err error) error {
	for _, damage := range kv.Corruptions(err) {
		if damage.First = r.meta.Smallest; i > 0 {
			damage.First = r.index.separator(i - 1)
		}
		damage.Last = r.index.separator(i)
	}
	return err
}

// corruptBlock returns damage to data block i.
func (r *Reader) corruptBlock(i int, reason string) error {
	offset, _ := r.index.span(i, i)
	return r.boundKeys(i, kv.Corruptf(r.file.Name(), offset, "%s", reason))
}

// openBlock verifies data block i, which borrows sealed.
func (r *Reader) openBlock(i int, sealed []byte) (block, error) {
	offset, _ := r.index.span(i, i)
	contents, reason := r.identity.unseal(sealed, kindData, offset)
	if reason != "" {
		return block{}, r.corruptBlock(i, reason)
	}
	b, ok := parseBlock(contents)
	if !ok {
		return block{}, r.malformed(i)
	}
	return b, nil
}

// malformed is the error for a block with a valid checksum that no writer makes.
func (r *Reader) malformed(i int) error { return r.corruptBlock(i, "data block is malformed") }
