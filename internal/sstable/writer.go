package sstable

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	defaultBlockBytes = 4 << 10
	maxBlockBytes     = 1 << 20
	defaultFilterBits = 10
	maxFilterBits     = 64

	// writeBytes is how much is written to the file at once. Guessed: what a disk takes in one
	// request.
	writeBytes = 256 << 10
)

// WriterOptions shape a file. The zero value is the default.
type WriterOptions struct {
	// BlockBytes is the largest size of a data block in the file; a longer entry has a
	// block of its own. Blocks end with a page of the file, where that is possible. Default
	// 4 KiB, which is a page, at most 1 MiB.
	BlockBytes int
	// FilterBitsPerKey is the size of the filter per key. Default 10 (about
	// 1 % of the absent keys pass), at most 64.
	FilterBitsPerKey int
}

// Writer makes one sstable. It is used by one goroutine.
//
// It holds one block, one write buffer, eight bytes per key for the filter, and
// the separators for the index. It has no Close: the caller owns the file, and closes
// it after Finish, or closes and removes it instead.
type Writer struct {
	file       vfs.File
	identity   identity
	blockBytes int
	filterBits int

	block     blockBuilder
	pending   []byte // sealed, not yet written
	written   int64  // bytes written to the file
	writeback vfs.Writeback

	index   indexBuilder
	padding int64    // bytes of padding so far
	hashes  []uint64 // of the distinct keys
	census  census
	footer  footer
	last    position
	err     error // sticky
}

// NewWriter returns a writer of an empty file. It does no I/O.
func NewWriter(f vfs.File, id kv.FileID, o WriterOptions) *Writer {
	if o.BlockBytes <= 0 {
		o.BlockBytes = defaultBlockBytes
	}
	if o.FilterBitsPerKey <= 0 {
		o.FilterBitsPerKey = defaultFilterBits
	}
	return &Writer{
		file:       f,
		identity:   newIdentity(id),
		blockBytes: min(o.BlockBytes, maxBlockBytes),
		filterBits: min(o.FilterBitsPerKey, maxFilterBits),
		footer:     footer{id: id},
		census:     census{meta: kv.TableMeta{Num: id.Num}},
	}
}

// Add appends an entry. Entries come in strictly ascending order of kv.Compare; only
// range tombstones may tie with others, because a batch may put a key and delete a
// range that begins there at the same sequence number.
//
// Add copies the slices of e.
// Errors: an entry out of order or out of bounds, or a write that failed. After
// any error the writer refuses everything.
func (w *Writer) Add(e *kv.Entry) error {
	if w.err == nil {
		w.err = w.add(e)
	}
	return w.err
}

func (w *Writer) add(e *kv.Entry) error {
	if err := checkEntry(e); err != nil {
		return fmt.Errorf("add to sstable %s: %w", w.file.Name(), err)
	}
	relation := w.last.relation(e)
	if relation == outOfOrder {
		return fmt.Errorf("add to sstable %s: %w: the entry of number %d does not follow that of number %d",
			w.file.Name(), kv.ErrInvalidArgument, e.Seq, w.last.seq)
	}
	if relation != tied && w.block.entries() > 0 && !w.fits(e) {
		if err := w.cutBlock(e); err != nil {
			return err
		}
	}
	if relation == newKey {
		w.hashes = append(w.hashes, keyhash.Sum(e.Key))
	}
	w.block.add(e, w.hashes[len(w.hashes)-1])
	w.last.move(e, relation)
	w.census.add(e, relation)
	return nil
}

// checkEntry returns an error if the format cannot hold e.
func checkEntry(e *kv.Entry) error {
	switch {
	case !e.Kind.Valid():
		return fmt.Errorf("%w: entry of %s", kv.ErrInvalidArgument, e.Kind)
	case e.Seq == 0 || e.Seq > kv.MaxSeqNum:
		return fmt.Errorf("%w: sequence number %d", kv.ErrInvalidArgument, e.Seq)
	case len(e.Key) == 0:
		return fmt.Errorf("%w: key is empty", kv.ErrInvalidArgument)
	case len(e.Key) > kv.MaxKeyBytes || len(e.Value) > kv.MaxValueBytes:
		return fmt.Errorf("%w: key has %d bytes, value %d", kv.ErrTooLarge, len(e.Key), len(e.Value))
	case e.Apart && e.Kind != kv.KindPut:
		return fmt.Errorf("%w: a %s with a separated value", kv.ErrInvalidArgument, e.Kind)
	case e.Kind == kv.KindDelete && len(e.Value) > 0:
		return fmt.Errorf("%w: a delete with a value", kv.ErrInvalidArgument)
	case e.Kind == kv.KindRangeDelete && (bytes.Compare(e.Key, e.Value) >= 0 || len(e.Value) > kv.MaxKeyBytes):
		return fmt.Errorf("%w: range delete from a key of %d to one of %d bytes, empty or too long", kv.ErrInvalidArgument, len(e.Key), len(e.Value))
	}
	if !e.Apart {
		return nil
	}
	if _, ok := kv.ParseValuePointer(e.Value); !ok {
		return fmt.Errorf("%w: %d bytes are not a value pointer", kv.ErrInvalidArgument, len(e.Value))
	}
	return nil
}

// offset returns where the next block begins.
func (w *Writer) offset() int64 { return w.written + int64(len(w.pending)) }

// fits reports whether the block has room for e.
func (w *Writer) fits(e *kv.Entry) bool {
	start := w.offset()
	return start+int64(w.block.sizeWith(e)+trailerBytes) <= endOfBlock(start, w.blockBytes)
}

// cutBlock ends the data block; next is the following entry, nil if there is none.
func (w *Writer) cutBlock(next *kv.Entry) error {
	var seq kv.SeqNum
	switch {
	case next == nil:
		w.index.keys = append(w.index.keys, w.last.key...)
	case bytes.Equal(w.last.key, next.Key): // between versions of one key
		w.index.keys = append(w.index.keys, w.last.key...)
		seq = w.last.seq
	default:
		w.index.keys = appendSeparator(w.index.keys, w.last.key, next.Key)
	}
	padding := w.paddingBefore(next)
	w.padding += int64(padding)
	n, err := w.writeBlock(kindData, func(dst []byte) []byte { return w.block.appendTo(dst, padding) })
	w.index.add(seq, n, w.block.entries())
	w.footer.data += uint64(n)
	w.block.reset()
	return err
}

// paddingBefore returns the padding of the block before next, which may be nil.
func (w *Writer) paddingBefore(next *kv.Entry) int {
	if next == nil {
		return 0
	}
	n := w.block.encodedBytes()
	padding := paddingBefore(w.offset()+int64(n+trailerBytes), int64(aloneBytes(next)+trailerBytes), w.padding)
	if offsetBytes(n) != offsetBytes(n+padding) {
		return 0 // each offset would be longer, and the block would not end with the page
	}
	return padding
}

// writeBlock appends a sealed block and returns its length with the trailer.
func (w *Writer) writeBlock(kind blockKind, contents func(dst []byte) []byte) (n int, err error) {
	start := len(w.pending)
	w.pending = contents(w.pending)
	sealed := w.identity.appendTrailer(w.pending[start:], kind, w.written+int64(start))
	w.pending = append(w.pending[:start], sealed...)
	if len(w.pending) >= writeBytes {
		err = w.flush()
	}
	return len(sealed), err
}

// flush writes the pending bytes to the file.
func (w *Writer) flush() error {
	n := int64(len(w.pending))
	if _, err := w.file.WriteAt(w.pending, w.written); err != nil {
		return fmt.Errorf("write sstable %s at offset %d: %w", w.file.Name(), w.written, err)
	}
	w.written += n
	w.pending = w.pending[:0]
	if n > 2*(writeBytes+maxBlockBytes) {
		w.pending = nil // a large value made it grow
	}
	w.writeback.Written(w.file, w.written)
	return nil
}

// Size returns the length of the file if it ended here, without filter,
// index and footer (together about 2 % of it).
func (w *Writer) Size() int64 {
	return w.written + int64(len(w.pending)) + int64(w.block.size())
}

// Finish completes the file, makes its bytes durable, and returns its description.
// The caller makes the directory entry durable. Finish fails if the file has no entry.
//
// The file stays open, and may be passed to Open.
func (w *Writer) Finish() (kv.TableMeta, error) {
	if w.err != nil {
		return kv.TableMeta{}, w.err
	}
	err := w.finish()
	w.err = fmt.Errorf("sstable %s is finished: %w", w.file.Name(), kv.ErrClosed)
	if err != nil {
		w.err = err
		return kv.TableMeta{}, err
	}
	return w.census.meta, nil
}

func (w *Writer) finish() error {
	if w.census.meta.Entries == 0 {
		return fmt.Errorf("%w: sstable %s without an entry", kv.ErrInvalidArgument, w.file.Name())
	}
	if err := w.cutBlock(nil); err != nil {
		return err
	}
	w.census.end(w.last.key)
	if err := w.writeTail(); err != nil {
		return err
	}
	w.pending = w.footer.appendTo(w.pending)
	if err := w.flush(); err != nil {
		return err
	}
	w.census.meta.Size = w.footer.fileSize()
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync sstable %s: %w", w.file.Name(), err)
	}
	return nil
}

// writeTail writes the blocks that follow the data.
func (w *Writer) writeTail() error {
	switch {
	case w.padding > 0:
		w.footer.version = formatVersion
	case !w.census.stats.stats.None():
		w.footer.version = formatStats
	default:
		w.footer.version = formatWithout
	}
	type part struct {
		kind     blockKind
		length   *uint64
		contents func(dst []byte) []byte
	}
	parts := []part{
		{kindFilter, &w.footer.filter, func(dst []byte) []byte { return appendFilter(dst, w.hashes, w.filterBits) }},
		{kindIndex, &w.footer.index, w.index.appendTo},
	}
	if len(w.census.tombstones) > 0 {
		parts = append(parts, part{kindRanges, &w.footer.ranges, func(dst []byte) []byte { return appendRanges(dst, w.census.tombstones) }})
	}
	parts = append(parts, part{kindProperties, &w.footer.properties, func(dst []byte) []byte {
		dst = appendProperties(dst, &w.census.meta, keyhash.Name)
		if w.footer.version >= formatStats {
			dst = appendStats(dst, &w.census.stats.stats)
		}
		if w.footer.version >= formatVersion {
			dst = appendPadding(dst, uint64(w.padding))
		}
		return dst
	}})
	for _, p := range parts {
		n, err := w.writeBlock(p.kind, p.contents)
		if err != nil {
			return err
		}
		*p.length = uint64(n)
	}
	return nil
}
