package sstable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// index finds the data block for a key. Each block has a separator, a pair of
// key and sequence number that orders not before the last entry of the block
// and before the first entry of the next. So the first block whose separator
// is not before (key, at) holds the first entry that is not before (key, at),
// even where the versions of one key cross a block boundary.
//
// The common prefix of all separators is stored once, and the next eight bytes of
// each are kept as a number: a search reads a dense array of numbers and
// compares bytes only on a tie. The leading bits of the number select where the search
// begins: a few blocks if keys are spread evenly, all of them at worst.
type index struct {
	common   []byte
	prefixes []uint64 // of the separators after common, big-endian, zero-padded
	starts   []uint32 // per value of (prefix-prefixes[0])>>shift: the first block with it or a higher one; then blocks()
	shift    uint
	offsets  []uint64 // of the data blocks, and the end of the last one
	fieldsAt []uint32 // position of each block's fields in contents
	contents []byte   // of the index block, borrowed
}

// indexFields is the entry of one data block in the index.
type indexFields struct {
	suffix  []byte    // of the separator key, after the common prefix
	seq     kv.SeqNum // 0 unless the block ends among the versions of the key
	length  uint64    // of the block with its trailer
	entries uint64
}

func decodeIndexFields(d *kv.Decoder) (f indexFields) {
	f.suffix = d.Bytes(kv.MaxKeyBytes)
	f.seq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
	f.length = d.Uvarint(maxDataBlock)
	f.entries = d.Uvarint(maxDataBlock)
	return f
}

// minIndexFields is the smallest encoding of a block's fields.
const minIndexFields = 4

// parseIndex decodes an index block, whose contents the index borrows. It verifies
// that the data blocks fill the file from 0 to dataEnd without a gap.
func parseIndex(contents []byte, dataEnd uint64) (x index, ok bool) {
	d := kv.Decoder{Rest: contents}
	x.common = d.Bytes(kv.MaxKeyBytes)
	blocks := d.Uvarint(uint64(len(contents)) / minIndexFields)
	if d.Err != nil || blocks == 0 || len(contents) > maxTailBytes {
		return x, false
	}
	x.contents = contents
	x.prefixes = make([]uint64, 0, blocks)
	x.offsets = make([]uint64, 0, blocks+1)
	x.fieldsAt = make([]uint32, 0, blocks)
	offset := uint64(0)
	var last indexFields
	for i := range blocks {
		x.fieldsAt = append(x.fieldsAt, uint32(len(contents)-len(d.Rest)))
		f := decodeIndexFields(&d)
		if d.Err != nil || f.length < minBlockBytes+trailerBytes || f.entries == 0 || f.length > dataEnd-offset ||
			len(x.common)+len(f.suffix) > kv.MaxKeyBytes ||
			i > 0 && kv.Compare(last.suffix, last.seq, f.suffix, f.seq) >= 0 {
			return x, false
		}
		x.prefixes = append(x.prefixes, kv.KeyWord(f.suffix, 0))
		x.offsets = append(x.offsets, offset)
		offset += f.length
		last = f
	}
	x.offsets = append(x.offsets, offset)
	x.makeStarts()
	first := x.fields(0).suffix
	tight := kv.CommonPrefix(first, last.suffix) == 0 && (blocks > 1 || len(first) == 0)
	return x, len(d.Rest) == 0 && offset == dataEnd && tight
}

// makeStarts uses as many leading bits as give at most two starts per block, and the
// one at the end.
func (x *index) makeStarts() {
	n := len(x.prefixes)
	span := x.prefixes[n-1] - x.prefixes[0] // they ascend
	x.shift = uint(max(bits.Len64(span)-bits.Len(uint(n)), 0))
	x.starts = make([]uint32, 0, span>>x.shift+2)
	for i, p := range x.prefixes {
		for uint64(len(x.starts)) <= (p-x.prefixes[0])>>x.shift {
			x.starts = append(x.starts, uint32(i))
		}
	}
	x.starts = append(x.starts, uint32(n))
}

// blocks returns the number of data blocks.
func (x *index) blocks() int { return len(x.prefixes) }

// fields decodes the fields of a block again; parseIndex has validated them.
func (x *index) fields(block int) indexFields {
	d := kv.Decoder{Rest: x.contents[x.fieldsAt[block]:]}
	return decodeIndexFields(&d)
}

// separator returns the separator key of a block, in new memory.
func (x *index) separator(block int) []byte {
	return slices.Concat(x.common, x.fields(block).suffix)
}

// span returns the position of the data blocks first to last, both included.
func (x *index) span(first, last int) (offset int64, length int) {
	return int64(x.offsets[first]), int(x.offsets[last+1] - x.offsets[first])
}

// find returns the block that holds the first entry that does not order before
// (key, seq), or blocks() if there is none.
func (x *index) find(key []byte, seq kv.SeqNum) int {
	n := min(len(key), len(x.common))
	switch c := bytes.Compare(key[:n], x.common[:n]); {
	case c > 0:
		return len(x.prefixes)
	case c < 0 || n < len(x.common):
		return 0
	}
	suffix := key[n:]
	prefix := kv.KeyWord(suffix, 0)
	if prefix < x.prefixes[0] {
		return 0
	}
	at := (prefix - x.prefixes[0]) >> x.shift
	if at >= uint64(len(x.starts)-1) {
		return len(x.prefixes)
	}
	low, high := int(x.starts[at]), int(x.starts[at+1])
	for low < high {
		mid := int(uint(low+high) / 2)
		before := x.prefixes[mid] < prefix
		if x.prefixes[mid] == prefix {
			f := x.fields(mid)
			before = kv.Compare(f.suffix, f.seq, suffix, seq) < 0
		}
		if before {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// mayReach reports whether a block may have keys >= key. It has false positives only
// where the first bytes after common do not decide.
func (x *index) mayReach(block int, key []byte) bool {
	n := min(len(key), len(x.common))
	if c := bytes.Compare(x.common[:n], key[:n]); c != 0 || n < len(x.common) {
		return c >= 0
	}
	return x.prefixes[block] >= kv.KeyWord(key[n:], 0)
}

// allAfter reports whether all keys of a block are > key. It has false negatives only for
// the first block, and where the first bytes after common do not decide.
func (x *index) allAfter(block int, key []byte) bool {
	if block == 0 {
		return false
	}
	n := min(len(key), len(x.common))
	if c := bytes.Compare(x.common[:n], key[:n]); c != 0 || n < len(x.common) {
		return c >= 0
	}
	return x.prefixes[block-1] > kv.KeyWord(key[n:], 0)
}

// indexBuilder collects the fields of the data blocks. The zero value is ready.
type indexBuilder struct {
	keys   []byte // the separators, concatenated
	blocks []indexBlock
}

type indexBlock struct {
	keyEnd  int // in keys
	seq     kv.SeqNum
	length  int
	entries int
}

// add appends a block whose separator key the caller has appended to keys.
func (x *indexBuilder) add(seq kv.SeqNum, length, entries int) {
	x.blocks = append(x.blocks, indexBlock{keyEnd: len(x.keys), seq: seq, length: length, entries: entries})
}

// appendTo appends the contents of the index block.
func (x *indexBuilder) appendTo(dst []byte) []byte {
	key := func(i int) []byte {
		start := 0
		if i > 0 {
			start = x.blocks[i-1].keyEnd
		}
		return x.keys[start:x.blocks[i].keyEnd]
	}
	common := kv.CommonPrefix(key(0), key(len(x.blocks)-1))
	dst = appendBytes(dst, key(0)[:common])
	dst = binary.AppendUvarint(dst, uint64(len(x.blocks)))
	for i, b := range x.blocks {
		dst = appendBytes(dst, key(i)[common:])
		dst = binary.AppendUvarint(dst, uint64(b.seq))
		dst = binary.AppendUvarint(dst, uint64(b.length))
		dst = binary.AppendUvarint(dst, uint64(b.entries))
	}
	return dst
}

// appendSeparator appends a short key s with last <= s < next to dst.
// REQUIRES: last < next.
func appendSeparator(dst, last, next []byte) []byte {
	n := kv.CommonPrefix(last, next)
	switch {
	case n == len(last):
		return append(dst, last...)
	case n+1 < len(next):
		return append(dst, next[:n+1]...)
	case last[n]+1 < next[n]:
		return append(append(dst, last[:n]...), last[n]+1)
	}
	return append(dst, last...)
}
