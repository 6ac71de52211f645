package memtable

import (
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// record is one entry in the arena, from its header to the end of its chunk:
//
//	u8  kind in the low 4 bits, flags above
//	u56 sequence number
//	u32 key length
//	u32 value length
//	u64 address of the next older version   if hasOlder
//	u64 expiry                              if hasExpiry
//	key
//	value, or u64 index of its blob         if inBlob
//
// It never changes once its address is published. The layout is not a disk format;
// numbers are little-endian because the trailer of package kv then has its kind in the
// first byte.
type record []byte

const (
	headerBytes = 16

	recordKindMask = 0x0f
	hasOlder       = 0x10
	hasExpiry      = 0x20
	inBlob         = 0x40
)

// The kinds must leave the upper four bits of their byte to the flags.
const _ = uint(recordKindMask - (kv.KindMax - 1))

func (r record) seq() kv.SeqNum { return kv.SeqNum(binary.LittleEndian.Uint64(r) >> 8) }

// keyOffset returns where the key begins.
func (r record) keyOffset() int {
	n := headerBytes
	if r[0]&hasOlder != 0 {
		n += 8
	}
	if r[0]&hasExpiry != 0 {
		n += 8
	}
	return n
}

func (r record) keyLen() int   { return int(binary.LittleEndian.Uint32(r[8:])) }
func (r record) valueLen() int { return int(binary.LittleEndian.Uint32(r[12:])) }

func (r record) key() []byte {
	from, n := r.keyOffset(), r.keyLen()
	return r[from : from+n : from+n]
}

// older returns the address of the next older version, or 0 if there is none.
func (r record) older() uint64 {
	if r[0]&hasOlder == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(r[headerBytes:])
}

// size returns the bytes that the record takes in its chunk.
func (r record) size() int {
	if r[0]&inBlob != 0 {
		return r.keyOffset() + r.keyLen() + 8
	}
	return r.keyOffset() + r.keyLen() + r.valueLen()
}

// recordSize returns the size of the record of e.
func recordSize(e *kv.Entry, older uint64, blob bool) int {
	n := headerBytes + len(e.Key) + len(e.Value)
	if blob {
		n += 8 - len(e.Value)
	}
	if older != 0 {
		n += 8
	}
	if e.Expiry != 0 {
		n += 8
	}
	return n
}

// encodeRecord encodes e into dst, which has room for it. For a value in a blob it
// stores the index of the blob.
func encodeRecord(dst []byte, e *kv.Entry, older uint64, blob bool, blobIndex uint64) {
	trailer := kv.Trailer(e.Seq, e.Kind)
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(e.Key)))
	binary.LittleEndian.PutUint32(dst[12:], uint32(len(e.Value)))
	n := headerBytes
	if older != 0 {
		trailer |= hasOlder
		binary.LittleEndian.PutUint64(dst[n:], older)
		n += 8
	}
	if e.Expiry != 0 {
		trailer |= hasExpiry
		binary.LittleEndian.PutUint64(dst[n:], e.Expiry)
		n += 8
	}
	n += copy(dst[n:], e.Key)
	if blob {
		trailer |= inBlob
		binary.LittleEndian.PutUint64(dst[n:], blobIndex)
	} else {
		copy(dst[n:], e.Value)
	}
	binary.LittleEndian.PutUint64(dst, trailer)
}
