package sstable

import (
	"bytes"
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// flagExpiry in the kind byte of a trailer: an expiry follows.
	flagExpiry = 0x80
	// flagApart likewise: the value is a pointer into a value file.
	flagApart = 0x40
	// minEntryBytes is three lengths of one byte and the trailer.
	minEntryBytes = 3 + 8
)

// block is the contents of a data block, which it borrows. Nothing is checked
// but the restart count: every access to an entry checks what it decodes and
// reports !ok for what no writer makes, so no input makes it panic.
type block struct {
	data     []byte
	limit    int // where the entries end and the restart points begin
	restarts int
}

// parseBlock reports !ok if contents cannot be a block.
func parseBlock(contents []byte) (b block, ok bool) {
	if len(contents) < minEntryBytes+8 {
		return b, false
	}
	restarts := uint64(binary.LittleEndian.Uint32(contents[len(contents)-4:]))
	if restarts == 0 || restarts > uint64(len(contents)-4)/4 {
		return b, false
	}
	limit := len(contents) - 4 - 4*int(restarts)
	return block{data: contents, limit: limit, restarts: int(restarts)}, true
}

// header is the decoded front of an entry.
type header struct {
	shared, unshared int // key bytes taken from the entry before, and here
	value            int // bytes
	keyAt            int // where the unshared key bytes begin; the value follows
	end              int // where the next entry begins
	seq              kv.SeqNum
	kind             kv.Kind
	expiry           uint64
	apart            bool
}

// header decodes the front of the entry at position at.
func (b *block) header(at int, h *header) (ok bool) {
	if at < 0 || at > b.limit-minEntryBytes {
		return false
	}
	p := b.data[at:b.limit]
	n := 3
	shared, unshared, value := uint64(p[0]), uint64(p[1]), uint64(p[2])
	if p[0]|p[1]|p[2] >= 0x80 {
		d := kv.Decoder{Rest: p}
		shared, unshared, value = d.Uvarint(kv.MaxKeyBytes), d.Uvarint(kv.MaxKeyBytes), d.Uvarint(kv.MaxValueBytes)
		n = len(p) - len(d.Rest)
		if d.Err != nil || len(d.Rest) < 8 {
			return false
		}
	}
	trailer := binary.LittleEndian.Uint64(p[n:])
	n += 8
	h.expiry = 0
	if trailer&flagExpiry != 0 {
		d := kv.Decoder{Rest: p[n:]}
		h.expiry = d.Uvarint(1<<64 - 1)
		n = len(p) - len(d.Rest)
		if h.expiry == 0 { // also if the number is malformed
			return false
		}
	}
	h.apart = trailer&flagApart != 0
	h.seq, h.kind = kv.SplitTrailer(trailer &^ (flagExpiry | flagApart))
	h.shared, h.unshared, h.value = int(shared), int(unshared), int(value)
	h.keyAt = at + n
	h.end = h.keyAt + h.unshared + h.value
	return h.end <= b.limit && h.kind.Valid() && h.seq != 0 && (!h.apart || h.kind == kv.KindPut)
}

// keyBytes and valueBytes return parts of the entry of h, borrowed.
func (b *block) keyBytes(h *header) []byte { return b.data[h.keyAt : h.keyAt+h.unshared] }
func (b *block) valueBytes(h *header) []byte {
	return b.data[h.end-h.value : h.end : h.end]
}

// restart decodes the front of the entry at restart point i.
func (b *block) restart(i int, h *header) (at int, ok bool) {
	at = int(binary.LittleEndian.Uint32(b.data[b.limit+4*i:]))
	return at, b.header(at, h) && h.shared == 0
}

// interval returns where the entries from restart point i to the next one lie.
func (b *block) interval(i int) (at, end int, ok bool) {
	at, end = int(binary.LittleEndian.Uint32(b.data[b.limit+4*i:])), b.limit
	if i+1 < b.restarts {
		end = int(binary.LittleEndian.Uint32(b.data[b.limit+4*i+4:]))
	}
	return at, end, at < end && end <= b.limit && (i > 0 || at == 0)
}

// restartBefore returns the number and the position of the last restart point
// whose entry orders before (key, seq), or of the first one.
func (b *block) restartBefore(key []byte, seq kv.SeqNum) (i, at int, ok bool) {
	var h header
	low, high := 0, b.restarts // entries at restart points <= low are before the target, at >= high not; 0 is not looked at
	for low+1 < high {
		mid := int(uint(low+high) / 2)
		if _, ok = b.restart(mid, &h); !ok {
			return 0, 0, false
		}
		if kv.Compare(b.keyBytes(&h), h.seq, key, seq) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	at, ok = b.restart(low, &h)
	return low, at, ok
}

// touch reads where a search may begin, the entries at the restart points, so
// that the processor fetches them all at once.
func (b *block) touch() (sum byte) {
	for i := range min(b.restarts, 8) {
		at := binary.LittleEndian.Uint32(b.data[b.limit+4*i:])
		sum += b.data[at%uint32(len(b.data))] // a wild one is the search's to report
	}
	return sum
}

// fetch reads a byte of each cache line, so that the processor fetches the lines
// of the block side by side. A forward walk needs no such help.
func (b *block) fetch() (sum byte) {
	const line, most = 64, 8 << 10 // of a large block the walk may see little
	for at := 0; at < min(b.limit, most); at += line {
		sum += b.data[at]
	}
	return sum
}

// find looks for the newest version of key that is not newer than seq, and
// describes it in h. It compares in place, without rebuilding keys.
func (b *block) find(key []byte, seq kv.SeqNum, h *header) (found, ok bool) {
	_, at, ok := b.restartBefore(key, seq)
	if !ok {
		return false, false
	}
	// Every entry passed is before the target; match is how many bytes the last
	// one has in common with key, length how long it is.
	match, length := 0, 0
	for at < b.limit {
		if !b.header(at, h) || h.shared > length {
			return false, false
		}
		at = h.end
		length = h.shared + h.unshared
		if h.shared > match {
			continue // it differs from key where the entry before it does
		}
		suffix := b.keyBytes(h)
		rest := key[h.shared:]
		n := commonPrefix(suffix, rest)
		match = h.shared + n
		switch {
		case n < len(suffix) && (n == len(rest) || suffix[n] > rest[n]):
			return false, true // behind key
		case n == len(suffix) && n == len(rest) && h.seq <= seq:
			return b.preferPoint(key, h)
		}
	}
	return false, true
}

// preferPoint keeps in h the version of key that h stands at or, if that is a
// range tombstone that ties with a put or delete of the same number, the latter:
// a range tombstone hides only older versions. The writer keeps such entries in
// one block.
func (b *block) preferPoint(key []byte, h *header) (found, ok bool) {
	tie := *h
	for tie.kind == kv.KindRangeDelete && tie.end < b.limit {
		if !b.header(tie.end, &tie) {
			return false, false
		}
		sameKey := tie.shared == len(key) && tie.unshared == 0 ||
			tie.shared == 0 && bytes.Equal(b.keyBytes(&tie), key) // at a restart point
		if !sameKey || tie.seq != h.seq {
			break
		}
		if tie.kind != kv.KindRangeDelete {
			*h = tie
		}
	}
	return true, true
}
