package sstable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"runtime"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// frontBytes is the fixed start of a data block: the number of its entries and the
	// length of their common prefix.
	frontBytes = 4 + 2
	// minEntryBytes is the trailer and the length of the suffix.
	minEntryBytes = 8 + 1
	// minBlockBytes is a block of one entry with its fingerprint, its offset and a key of
	// one byte.
	minBlockBytes = frontBytes + 1 + 2 + minEntryBytes + 1
	// maxPrefixBytes is the largest prefix length that the front can store.
	maxPrefixBytes = 1<<16 - 1
	// flagExpiry in the kind byte of a trailer: an expiry follows.
	flagExpiry = 0x80
	// flagApart in the kind byte of a trailer: the value is a pointer into a value file.
	flagApart = 0x40
)

// fingerprint is the byte of a key's hash that represents the key in a block's front.
// Partition and memtable use other bits of the hash.
func fingerprint(hash uint64) byte { return byte(hash >> 24) }

// offsetBytes returns the width of an offset in a block of this length.
func offsetBytes(length int) int {
	if length <= 1<<16 {
		return 2
	}
	return 4
}

// block is the contents of a data block, which it borrows, and the positions of their
// parts. Every access to an entry validates what it decodes and reports !ok for bytes
// that no writer makes, so no input causes a panic.
type block struct {
	data         []byte
	entries      int
	fingerprints int // position of the first one, after the prefix
	offsets      int // position of the first one
}

// parseBlock reports !ok if contents cannot be a block. It checks the front, the first
// offset and the padding, not the entries.
func parseBlock(contents []byte) (b block, ok bool) {
	if len(contents) < minBlockBytes {
		return b, false
	}
	entries := uint64(binary.LittleEndian.Uint32(contents))
	fingerprints := uint64(frontBytes) + uint64(binary.LittleEndian.Uint16(contents[4:]))
	size := offsetBytes(len(contents))
	if entries == 0 || fingerprints+entries*uint64(1+size+minEntryBytes) > uint64(len(contents)) {
		return b, false
	}
	b = cachedBlock(contents)
	at, _, ok := b.span(0)
	return b, ok && at >= b.offsetsEnd() && isPadding(b.padding())
}

// cachedBlock returns the block with contents that were cached, and so parsed before.
func cachedBlock(contents []byte) block {
	entries := int(binary.LittleEndian.Uint32(contents))
	fingerprints := frontBytes + int(binary.LittleEndian.Uint16(contents[4:]))
	return block{data: contents, entries: entries, fingerprints: fingerprints, offsets: fingerprints + entries}
}

func (b *block) offsetsEnd() int { return b.offsets + offsetBytes(len(b.data))*b.entries }

// padding returns what lies between the offsets and the first entry, borrowed.
func (b *block) padding() []byte {
	at, _, _ := b.span(0)
	return b.data[b.offsetsEnd():at]
}

// isPadding reports whether a writer may have written b as padding.
func isPadding(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return len(b) < pageBytes
}

// prefix returns the common prefix of all keys, borrowed.
func (b *block) prefix() []byte { return b.data[frontBytes:b.fingerprints] }

// span returns the position of entry i. Whatever the offsets are, the entries fill the
// block after the offsets without a gap, unless span refuses one of them.
func (b *block) span(i int) (at, end int, ok bool) {
	// The last offset is followed by entries, so these bytes exist.
	if len(b.data) <= 1<<16 {
		o := binary.LittleEndian.Uint32(b.data[b.offsets+2*i:])
		at, end = int(o&0xffff), int(o>>16)
	} else {
		o := binary.LittleEndian.Uint64(b.data[b.offsets+4*i:])
		at, end = int(o&0xffff_ffff), int(o>>32)
	}
	if i == b.entries-1 {
		end = len(b.data)
	}
	return at, end, at+minEntryBytes <= end && end <= len(b.data)
}

// header is the decoded front of an entry.
type header struct {
	suffixAt int // where the key continues after the prefix
	valueAt  int // the value follows
	end      int // of the entry
	seq      kv.SeqNum
	kind     kv.Kind
	expiry   uint64
	apart    bool
}

// suffix and value return parts of the entry of h, borrowed.
func (b *block) suffix(h *header) []byte { return b.data[h.suffixAt:h.valueAt:h.valueAt] }
func (b *block) value(h *header) []byte  { return b.data[h.valueAt:h.end:h.end] }

// header decodes the front of entry i.
func (b *block) header(i int, h *header) (ok bool) {
	at, end, ok := b.span(i)
	if !ok {
		return false
	}
	p := b.data[at:end]
	trailer, suffix := binary.LittleEndian.Uint64(p), int(p[8])
	if byte(trailer) == byte(kv.KindPut) && suffix < 0x80 { // the common case: no flag, a short key
		h.seq, h.kind, h.expiry, h.apart = kv.SeqNum(trailer>>8), kv.KindPut, 0, false
		h.suffixAt, h.valueAt, h.end = at+minEntryBytes, at+minEntryBytes+suffix, end
		return h.valueAt <= end && uint(b.fingerprints-frontBytes+suffix-1) < kv.MaxKeyBytes && h.seq != 0
	}
	h.seq, h.kind = kv.SplitTrailer(trailer &^ (flagExpiry | flagApart))
	h.apart = trailer&flagApart != 0
	h.expiry, h.suffixAt, h.end = 0, at+minEntryBytes, end
	if suffix >= 0x80 || trailer&flagExpiry != 0 {
		d := kv.Decoder{Rest: p[8:]}
		suffix = int(d.Uvarint(kv.MaxKeyBytes))
		if trailer&flagExpiry != 0 {
			if h.expiry = d.Uvarint(1<<64 - 1); h.expiry == 0 { // also if the number is malformed
				return false
			}
		}
		if d.Err != nil {
			return false
		}
		h.suffixAt = end - len(d.Rest)
	}
	h.valueAt = h.suffixAt + suffix
	key, value := b.fingerprints-frontBytes+suffix, end-h.valueAt
	return value >= 0 && (value == 0 || h.kind != kv.KindDelete) && key > 0 && key <= kv.MaxKeyBytes &&
		h.kind.Valid() && h.seq != 0 && (!h.apart || h.kind == kv.KindPut)
}

const (
	// together is how many fingerprints are compared at once.
	together = 8
	// cacheLine is the unit in which the processor fetches memory. Only speed depends
	// on it.
	cacheLine = 64
)

// candidates sets bit 7 in the byte of each entry, of entries first up to first+8,
// whose fingerprint is print. It may also set bytes after the last entry.
func (b *block) candidates(first int, print byte) uint64 {
	const ones, low = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f
	// Eight bytes are always available: offsets and entries follow.
	x := binary.LittleEndian.Uint64(b.data[b.fingerprints+first:]) ^ ones*uint64(print)
	return ^(x&low + low | x | low) // bytes of x that are zero
}

// find looks for the newest version of key, which has this hash, that is not newer
// than seq, and describes it in h.
func (b *block) find(key []byte, hash uint64, seq kv.SeqNum, h *header) (found, ok bool) {
	suffix, ok := bytes.CutPrefix(key, b.prefix())
	if !ok {
		return false, true
	}
	print := fingerprint(hash)
	for first := 0; first < b.entries; first += together {
		for c := b.candidates(first, print); c != 0; c &= c - 1 {
			i := first + bits.TrailingZeros64(c)/8
			if i >= b.entries {
				return false, true
			}
			if !b.header(i, h) {
				return false, false
			}
			// The versions of a key are adjacent, the newest first.
			if h.seq <= seq && bytes.Equal(b.suffix(h), suffix) {
				return b.preferPoint(i, suffix, h)
			}
		}
	}
	return false, true
}

// touchFront loads the memory where a search in a block with these contents begins.
// Reading a byte before it is needed starts the fetch of its cache line while the
// processor continues.
func touchFront(contents []byte) (sum byte) {
	return contents[0] + contents[min(cacheLine, len(contents)-1)]
}

// touchAll reads a byte of each cache line of a block, up to a bound. A forward walk
// does not need it.
func touchAll(contents []byte) (sum byte) {
	const most = 8 << 10 // a walk may use little of a large block
	for at := 0; at < min(len(contents), most); at += cacheLine {
		sum += contents[at]
	}
	return sum
}

// touchEntry loads the entry that a search for a key of this hash reaches, if the
// fingerprints identify one.
func (b *block) touchEntry(hash uint64) (sum byte) {
	print := fingerprint(hash)
	for first := 0; first < b.entries; first += together {
		c := b.candidates(first, print)
		if c == 0 {
			continue
		}
		i := first + bits.TrailingZeros64(c)/8
		if i >= b.entries {
			return 0
		}
		at, end, ok := b.span(i)
		if !ok {
			return 0
		}
		for line := range min((end-at)/cacheLine+1, 4) { // copying a large value fetches the rest
			sum += b.data[min(at+line*cacheLine, end-1)]
		}
		return sum
	}
	return 0
}

// preferPoint leaves in h the version that h describes, entry i, unless that is a range
// tombstone that ties with a put or delete of the same number: then it describes the
// latter, because a range tombstone hides only older versions. The writer keeps such
// entries in one block.
func (b *block) preferPoint(i int, suffix []byte, h *header) (found, ok bool) {
	tie := *h
	for tie.kind == kv.KindRangeDelete && i+1 < b.entries {
		i++
		if !b.header(i, &tie) {
			return false, false
		}
		if tie.seq != h.seq || !bytes.Equal(b.suffix(&tie), suffix) {
			break
		}
		if tie.kind != kv.KindRangeDelete {
			*h = tie
		}
	}
	return true, true
}

// seek returns the first entry whose key is not less than key, or entries if there is
// none.
func (b *block) seek(key []byte) (i int, ok bool) {
	prefix := b.prefix()
	n := min(len(key), len(prefix))
	switch c := bytes.Compare(key[:n], prefix[:n]); {
	case c > 0:
		return b.entries, true
	case c < 0 || n < len(prefix):
		return 0, true
	}
	suffix := key[n:]
	low, high := 0, b.entries
	for low < high { // the answer is in low to high
		step := (high - low + probes - 1) / probes
		b.touchEvery(step, low, high)
		first, end := 0, (high-low+step-1)/step // of the probes, entries low, low+step, ...
		for first < end {
			mid := int(uint(first+end) / 2)
			before, ok := b.before(low+mid*step, suffix)
			if !ok {
				return 0, false
			}
			if before {
				first = mid + 1
			} else {
				end = mid
			}
		}
		if at := low + first*step; at < high {
			high = at
		}
		if first > 0 {
			low += (first-1)*step + 1
		}
	}
	return low, true
}

// probes is how many entries a step of a search loads at once. The entries of a block of
// 4 KiB have a cache line or two each, so a binary search would wait for memory at nearly
// every step.
const probes = 8

// touchEvery loads every step-th of the entries low to high.
func (b *block) touchEvery(step, low, high int) {
	var sum byte // keeps the compiler from dropping the loads
	for i := low; i < high; i += step {
		if at, _, ok := b.span(i); ok {
			sum += b.data[at]
		}
	}
	runtime.KeepAlive(sum)
}

// before reports whether the key of entry i, without the prefix, is less than suffix.
func (b *block) before(i int, suffix []byte) (before, ok bool) {
	var h header
	if !b.header(i, &h) {
		return false, false
	}
	return bytes.Compare(b.suffix(&h), suffix) < 0, true
}
