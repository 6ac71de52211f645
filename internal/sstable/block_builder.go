package sstable

import (
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// blockBuilder lays out the entries of one data block. The zero value is ready.
type blockBuilder struct {
	buf      []byte
	restarts []uint32
	lastKey  []byte
	entries  int
}

// add appends an entry; the writer has checked it and its order.
func (b *blockBuilder) add(e *kv.Entry) {
	shared := 0
	if b.entries%restartInterval == 0 {
		b.restarts = append(b.restarts, uint32(len(b.buf)))
	} else {
		shared = commonPrefix(b.lastKey, e.Key)
	}
	b.buf = appendEntry(b.buf, shared, e)
	b.lastKey = append(b.lastKey[:shared], e.Key[shared:]...)
	b.entries++
}

// appendEntry appends e, whose first shared key bytes are those of the entry
// before it.
func appendEntry(dst []byte, shared int, e *kv.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = binary.AppendUvarint(dst, uint64(len(e.Key)-shared))
	dst = binary.AppendUvarint(dst, uint64(len(e.Value)))
	trailer := kv.Trailer(e.Seq, e.Kind)
	if e.Expiry != 0 {
		trailer |= flagExpiry
	}
	if e.Apart {
		trailer |= flagApart
	}
	dst = binary.LittleEndian.AppendUint64(dst, trailer)
	if e.Expiry != 0 {
		dst = binary.AppendUvarint(dst, e.Expiry)
	}
	dst = append(dst, e.Key[shared:]...)
	return append(dst, e.Value...)
}

// size returns the length of the contents if the block ended here.
func (b *blockBuilder) size() int { return len(b.buf) + 4*len(b.restarts) + 4 }

// finish returns the contents of the block, borrowed until reset.
func (b *blockBuilder) finish() []byte {
	for _, r := range b.restarts {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, r)
	}
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(len(b.restarts)))
	return b.buf
}

// reset empties the builder and keeps its memory, unless one large value made
// it grow out of proportion.
func (b *blockBuilder) reset() {
	if cap(b.buf) > 2*maxBlockBytes {
		b.buf = nil
	}
	b.buf, b.restarts, b.lastKey, b.entries = b.buf[:0], b.restarts[:0], b.lastKey[:0], 0
}
