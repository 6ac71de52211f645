package sstable

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// blockBuilder encodes the entries of one data block. The zero value is ready.
//
// It collects entries and encodes them at the end, because the common prefix of the
// keys is known only then.
type blockBuilder struct {
	data         []byte // key and value of each entry
	added        []addedEntry
	fingerprints []byte
	prefix       int // length of the common prefix of all keys
	bytes        int // of the entries with full keys
}

// addedEntry describes an added entry except for its key and value.
type addedEntry struct {
	key, end int // length of the key, end of the value in data
	trailer  uint64
	expiry   uint64
}

// add appends an entry whose key has this hash. The writer has checked the entry and
// its order.
func (b *blockBuilder) add(e *kv.Entry, hash uint64) {
	b.prefix = b.sharedWith(e.Key)
	b.bytes += fullBytes(e)
	b.data = append(append(b.data, e.Key...), e.Value...)
	trailer := kv.Trailer(e.Seq, e.Kind)
	if e.Expiry != 0 {
		trailer |= flagExpiry
	}
	if e.Apart {
		trailer |= flagApart
	}
	b.added = append(b.added, addedEntry{key: len(e.Key), end: len(b.data), trailer: trailer, expiry: e.Expiry})
	b.fingerprints = append(b.fingerprints, fingerprint(hash))
}

// sharedWith returns the length of the common prefix if key were added.
func (b *blockBuilder) sharedWith(key []byte) int {
	if len(b.added) == 0 {
		return min(len(key), maxPrefixBytes)
	}
	return kv.CommonPrefix(b.data[:b.prefix], key)
}

func (b *blockBuilder) entries() int { return len(b.added) }

// size returns the length of the contents if the block ended here, or a few bytes
// more; sizeWith the same with e added.
func (b *blockBuilder) size() int { return contentsBytes(len(b.added), b.prefix, b.bytes) }

func (b *blockBuilder) sizeWith(e *kv.Entry) int {
	return contentsBytes(len(b.added)+1, b.sharedWith(e.Key), b.bytes+fullBytes(e))
}

// fullBytes returns the size of e with its full key.
func fullBytes(e *kv.Entry) int { return frontOf(len(e.Key), e.Expiry) + len(e.Key) + len(e.Value) }

// aloneBytes returns the length of a block that has e alone.
func aloneBytes(e *kv.Entry) int {
	prefix := min(len(e.Key), maxPrefixBytes)
	n := frontBytes + prefix + 1 + frontOf(len(e.Key)-prefix, e.Expiry) + len(e.Key) - prefix + len(e.Value)
	return n + offsetBytes(n+2)
}

// contentsBytes returns the length of a block of this many entries. bytes is their
// size with full keys.
func contentsBytes(entries, prefix, bytes int) int {
	n := frontBytes + prefix + entries + bytes - entries*prefix
	return n + entries*offsetBytes(n+2*entries)
}

// encodedBytes returns the length of the contents without padding.
func (b *blockBuilder) encodedBytes() int {
	n := frontBytes + b.prefix + len(b.added)
	for i := range b.added {
		n += b.entryBytes(i)
	}
	return n + len(b.added)*offsetBytes(n+2*len(b.added))
}

// appendTo appends the contents of the block. REQUIRES: offsets take as many bytes as without
// padding.
func (b *blockBuilder) appendTo(dst []byte, padding int) []byte {
	n := b.encodedBytes() + padding
	dst = slices.Grow(dst, n)
	offset := offsetBytes(n)
	at := frontBytes + b.prefix + (1+offset)*len(b.added) + padding

	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.added)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(b.prefix))
	dst = append(append(dst, b.data[:b.prefix]...), b.fingerprints...)
	for i := range b.added {
		if offset == 2 {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(at))
		} else {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(at))
		}
		at += b.entryBytes(i)
	}
	dst = append(dst, make([]byte, padding)...)
	start := 0
	for i := range b.added {
		e := &b.added[i]
		dst = binary.LittleEndian.AppendUint64(dst, e.trailer)
		dst = binary.AppendUvarint(dst, uint64(e.key-b.prefix))
		if e.expiry != 0 {
			dst = binary.AppendUvarint(dst, e.expiry)
		}
		dst = append(dst, b.data[start+b.prefix:e.end]...)
		start = e.end
	}
	return dst
}

// entryBytes returns the size of entry i.
func (b *blockBuilder) entryBytes(i int) int {
	e, start := &b.added[i], 0
	if i > 0 {
		start = b.added[i-1].end
	}
	return frontOf(e.key-b.prefix, e.expiry) + e.end - start - b.prefix
}

// frontOf returns the number of bytes before the key of an entry.
func frontOf(suffix int, expiry uint64) int {
	n := 8 + uvarintBytes(uint64(suffix))
	if expiry != 0 {
		n += uvarintBytes(expiry)
	}
	return n
}

func uvarintBytes(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// reset empties the builder. It keeps the memory unless a large value made it
// grow far beyond a normal block.
func (b *blockBuilder) reset() {
	if cap(b.data) > 2*maxBlockBytes {
		b.data = nil
	}
	b.data, b.added, b.fingerprints, b.prefix, b.bytes = b.data[:0], b.added[:0], b.fingerprints[:0], 0, 0
}
