package sstable

import (
	"encoding/binary"
	"math/bits"
)

const (
	filterLineBytes = 64 // a cache line; all bits of a key are in one
	filterLineBits  = 8 * filterLineBytes
	filterBlocked   = 1 // the only kind of filter so far
	maxFilterProbes = 7 // 9 bits each, so that they fit one 64-bit product
	maxFilterLines  = maxTailBytes / 2 / filterLineBytes
)

// filter answers whether a file may hold a key: a Bloom filter cut into cache
// lines (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom
// Filters", 2007), so that an answer costs one cache miss. It borrows its bytes.
type filter struct {
	lines  []byte
	count  uint64 // of lines
	probes int
}

// filterSpread returns the line of a hash, and the bits in it, 9 per probe.
// All hashes of one partition have the same high bits, so both results mix in
// the low ones.
func filterSpread(hash, lines uint64) (line, probes uint64) {
	line, _ = bits.Mul64((hash^hash>>32)*0x9e3779b97f4a7c15, lines)
	probes = (hash ^ hash>>29) * 0xbf58476d1ce4e5b9
	return line, probes ^ probes>>32
}

// mayContain reports false only if no key of this hash was added.
func (f *filter) mayContain(hash uint64) bool {
	line, probes := filterSpread(hash, f.count)
	l := f.lines[line*filterLineBytes:][:filterLineBytes]
	for range f.probes {
		bit := probes % filterLineBits
		if l[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		probes >>= 9
	}
	return true
}

// touch loads the line that mayContain will read.
func (f *filter) touch(hash uint64) byte {
	line, _ := filterSpread(hash, f.count)
	return f.lines[line*filterLineBytes]
}

// appendFilter appends the contents of the filter block for the hashes: the
// lines first, so that they are aligned to cache lines once the block is in memory,
// then kind, probes, two zero bytes and the number of lines.
func appendFilter(dst []byte, hashes []uint64, bitsPerKey int) []byte {
	lines := uint64(len(hashes)*bitsPerKey+filterLineBits-1) / filterLineBits
	lines = min(max(lines, 1), maxFilterLines)
	// 0.69 probes per bit would be optimal if a key's bits were spread over the
	// whole filter; within one line somewhat fewer are.
	probes := min(max(bitsPerKey*6/10, 1), maxFilterProbes)
	start := len(dst)
	dst = append(dst, make([]byte, lines*filterLineBytes)...)
	for _, hash := range hashes {
		line, spread := filterSpread(hash, lines)
		l := dst[start+int(line)*filterLineBytes:]
		for range probes {
			bit := spread % filterLineBits
			l[bit/8] |= 1 << (bit % 8)
			spread >>= 9
		}
	}
	dst = append(dst, filterBlocked, byte(probes), 0, 0)
	return binary.LittleEndian.AppendUint32(dst, uint32(lines))
}

// parseFilter decodes a filter block, whose contents the filter borrows.
func parseFilter(contents []byte) (f filter, ok bool) {
	n := len(contents) - 8
	if n < filterLineBytes {
		return f, false
	}
	end := contents[n:]
	f.lines, f.count, f.probes = contents[:n], uint64(binary.LittleEndian.Uint32(end[4:])), int(end[1])
	ok = end[0] == filterBlocked && f.probes >= 1 && f.probes <= maxFilterProbes &&
		end[2] == 0 && end[3] == 0 && f.count == uint64(n)/filterLineBytes && n%filterLineBytes == 0
	return f, ok
}
