package sstable

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// A file has the oldest of these versions that can hold it, so that older releases can
	// read it: formatVersion if blocks are padded, else formatStats if it has kv.TableStats,
	// else formatWithout.
	formatVersion = 5
	formatStats   = 4
	formatWithout = 3

	// trailerBytes follow the contents of every block: the compression and the
	// checksum.
	trailerBytes    = 1 + 4
	compressionNone = 1 // 0 is never valid, the others are reserved

	// maxDataBlock bounds the length of a data block before anything is
	// allocated for it: the largest block target plus the largest entry.
	maxDataBlock = maxBlockBytes + kv.MaxValueBytes + 2*kv.MaxKeyBytes

	// maxTailBytes bounds filter, index, range tombstones and properties
	// together, so that positions in them fit 32 bits.
	maxTailBytes = 1 << 31
)

// blockKind says what a block holds. It is not stored but included in the checksum,
// so that a filter read as an index is damage.
type blockKind uint8

const (
	kindData       blockKind = 1
	kindFilter     blockKind = 2
	kindIndex      blockKind = 3
	kindRanges     blockKind = 4
	kindProperties blockKind = 5
)

func (k blockKind) String() string {
	switch k {
	case kindData:
		return "data block"
	case kindFilter:
		return "filter"
	case kindIndex:
		return "index"
	case kindRanges:
		return "range tombstones"
	case kindProperties:
		return "properties"
	}
	return "block"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identity binds checksums to one file: it is the CRC state after the file's
// partition and number.
type identity uint32

func newIdentity(id kv.FileID) identity {
	state := crcUint(^uint32(0), uint64(id.Partition), 4)
	return identity(crcUint(state, uint64(id.Num), 8))
}

// checksum returns the CRC32C of partition, file number, offset, kind and
// sealed, where sealed is the contents of a block and its compression byte.
func (id identity) checksum(kind blockKind, offset int64, sealed []byte) uint32 {
	state := crcUint(uint32(id), uint64(offset), 8)
	state = crcUint(state, uint64(kind), 1)
	return crc32.Update(^state, castagnoli, sealed)
}

// crcUint adds the low n bytes of v, little-endian, to a raw CRC state. crc32.Update
// would move so few bytes to the heap.
func crcUint(state uint32, v uint64, n int) uint32 {
	for range n {
		state = castagnoli[byte(state)^byte(v)] ^ state>>8
		v >>= 8
	}
	return state
}

// appendTrailer seals block, which begins at offset of the file.
func (id identity) appendTrailer(block []byte, kind blockKind, offset int64) []byte {
	block = append(block, compressionNone)
	return binary.LittleEndian.AppendUint32(block, id.checksum(kind, offset, block))
}

// unseal verifies a block with its trailer and returns its contents, which
// alias block. The reason is empty if the block is intact.
func (id identity) unseal(block []byte, kind blockKind, offset int64) (contents []byte, reason string) {
	n := len(block) - trailerBytes
	if n < 0 {
		return nil, kind.String() + " is too short"
	}
	if binary.LittleEndian.Uint32(block[n+1:]) != id.checksum(kind, offset, block[:n+1]) {
		return nil, kind.String() + " checksum mismatch"
	}
	if block[n] != compressionNone {
		return nil, kind.String() + " has an unknown compression"
	}
	return block[:n:n], ""
}

// appendBytes appends the length of b as a varint, then b.
func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
