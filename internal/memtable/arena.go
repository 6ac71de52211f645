package memtable

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// addressBits is the part of an index slot that holds an address: 1 TiB of records.
	addressBits = 40
	addressMask = 1<<addressBits - 1

	// firstAddress is the address of the first record. Address 0 means "none".
	firstAddress = 8

	// firstChunkBytes is the size of the first chunks. Each later one has a quarter of
	// what all before it have together, up to the chunk size. So an idle partition costs little, and
	// at most a fifth of the memory of a memtable is not used yet.
	firstChunkBytes = 16 << 10

	// blobShare: a value larger than this part of a chunk is allocated by itself, so that
	// it does not waste the rest of a chunk.
	blobShare = 4
)

// arena holds the records in the order of Add, in chunks that never move.
//
// An address is the index of a chunk, shifted by the chunk size, plus the offset
// in the chunk. A chunk may be smaller than the chunk size, or larger if a single
// record is; every record starts within the first chunkBytes of its chunk.
//
// One goroutine appends; any goroutine may read what was published to it.
type arena struct {
	shift  uint
	chunks list[[]byte]
	blobs  list[[]byte]
	// tail is the address after the last published record.
	tail atomic.Uint64
	held atomic.Int64 // bytes of chunks and blobs
}

func (a *arena) init(chunkBytes int) {
	a.shift = uint(bits.Len(uint(chunkBytes - 1)))
	a.tail.Store(firstAddress)
}

func (a *arena) chunkBytes() int { return 1 << a.shift }

// append copies e into the arena and returns the address of its record, which
// walk does not reach before publish.
func (a *arena) append(e *kv.Entry, older uint64) uint64 {
	blob := len(e.Value) > a.chunkBytes()/blobShare
	var blobIndex uint64
	if blob {
		value := append([]byte(nil), e.Value...)
		blobIndex = a.blobs.add(value)
		a.held.Add(int64(cap(value)))
	}
	size := recordSize(e, older, blob)
	at, dst := a.allocate(size)
	encodeRecord(dst, e, older, blob, blobIndex)
	return at
}

// publish makes the record at the address visible to walk.
func (a *arena) publish(at uint64) { a.tail.Store(a.after(at, a.record(at).size())) }

// allocate returns the address and the memory of the next record.
func (a *arena) allocate(size int) (uint64, []byte) {
	at := a.tail.Load()
	chunks := a.chunks.all()
	index, offset := a.split(at)
	if index < uint64(len(chunks)) && offset+size <= len(chunks[index]) {
		return at, chunks[index][offset : offset+size]
	}
	offset = 0
	if len(chunks) == 0 {
		offset = firstAddress
	}
	chunk := make([]byte, max(offset+size, min(a.chunkBytes(), max(firstChunkBytes, int(a.held.Load())/4))))
	at = a.chunks.add(chunk)<<a.shift | uint64(offset)
	if at > addressMask {
		panic("memtable: arena exceeds its address space of 1 TiB")
	}
	a.held.Add(int64(len(chunk)))
	return at, chunk[offset : offset+size]
}

func (a *arena) split(at uint64) (index uint64, offset int) {
	return at >> a.shift, int(at & (1<<a.shift - 1))
}

// after returns the address that follows a record of this size.
func (a *arena) after(at uint64, size int) uint64 {
	index, offset := a.split(at)
	if offset+size >= a.chunkBytes() {
		return (index + 1) << a.shift
	}
	return at + uint64(size)
}

func (a *arena) record(at uint64) record {
	index, offset := a.split(at)
	return a.chunks.all()[index][offset:]
}

// decode fills e from a record of the arena, from which it borrows the slices.
func (a *arena) decode(r record, e *kv.Entry) {
	from, n := r.keyOffset(), r.keyLen()
	e.Key = r[from : from+n : from+n]
	e.Seq = r.seq()
	e.Kind = kv.Kind(r[0] & recordKindMask)
	e.Expiry = 0
	if r[0]&hasExpiry != 0 {
		e.Expiry = binary.LittleEndian.Uint64(r[from-8:])
	}
	from += n
	switch {
	case e.Kind == kv.KindDelete:
		e.Value = nil
	case r[0]&inBlob != 0:
		e.Value = a.blobs.all()[binary.LittleEndian.Uint64(r[from:])]
	default:
		n = r.valueLen()
		e.Value = r[from : from+n : from+n]
	}
}

// walk calls fn for each published record from the address from on, in the
// order of Add, until fn returns false. It returns the address at which the next walk
// continues: after the last record passed to fn.
func (a *arena) walk(from uint64, fn func(at uint64, r record) bool) uint64 {
	tail := a.tail.Load()
	chunks := a.chunks.all()
	for from != tail {
		index, offset := a.split(from)
		// The writer never returns to a chunk before that of the tail; the rest of such a
		// chunk is too short for a header, or zero.
		chunk := chunks[index]
		if len(chunk)-offset < headerBytes || chunk[offset] == 0 {
			from = (index + 1) << a.shift
			continue
		}
		r := record(chunk[offset:])
		at := from
		from = a.after(from, r.size())
		if !fn(at, r) {
			break
		}
	}
	return from
}
