package memtable

import (
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// insertionMax is the size up to which insertion sort is faster (measured).
const insertionMax = 24

// sort sorts refs whose words are those at the depth, up to which all keys are equal: a
// radix sort from the most significant byte, in place, on the word in each ref; then, for
// refs with equal words, on the next word of their keys. Compare McIlroy, Bostic, McIlroy:
// "Engineering Radix Sort", Computing Systems 6(1), 1993 (American flag sort); taking eight
// bytes at a time is the caching of Ng and Kakehi, "Cache Efficient Radix Sort for String
// Sorting", 2007.
func (a *arena) sort(refs []ref, depth int) { a.sortWord(refs, depth, 56) }

// sortWord sorts refs whose keys agree in their first depth bytes and whose
// words, read at depth, agree in all bits above shift+8.
func (a *arena) sortWord(refs []ref, depth, shift int) {
	for ; len(refs) > insertionMax; shift -= 8 {
		if shift < 0 {
			a.sortNextWord(refs, depth+8)
			return
		}
		var end [256]uint32
		for i := range refs {
			end[byte(refs[i].word>>shift)]++
		}
		if end[byte(refs[0].word>>shift)] == uint32(len(refs)) {
			continue
		}
		scatter(refs, shift, &end)
		start := uint32(0)
		for _, e := range end {
			if e-start > 1 {
				a.sortWord(refs[start:e], depth, shift-8)
			}
			start = e
		}
		return
	}
	for i := 1; i < len(refs); i++ {
		for j := i; j > 0 && a.compare(refs[j], refs[j-1]) < 0; j-- {
			refs[j], refs[j-1] = refs[j-1], refs[j]
		}
	}
}

// scatter moves each ref into the bucket of its byte at shift. end holds the sizes of
// the buckets before the call, and their ends after it.
func scatter(refs []ref, shift int, end *[256]uint32) {
	var next [256]uint32
	sum := uint32(0)
	for b, n := range end {
		next[b] = sum
		sum += n
		end[b] = sum
	}
	for b := range next {
		for next[b] < end[b] {
			r := refs[next[b]]
			for home := byte(r.word >> shift); int(home) != b; home = byte(r.word >> shift) {
				refs[next[home]], r = r, refs[next[home]]
				next[home]++
			}
			refs[next[b]] = r
			next[b]++
		}
	}
}

// sortNextWord sorts refs whose words before depth are equal. A key that ends
// before depth comes before all longer keys.
func (a *arena) sortNextWord(refs []ref, depth int) {
	short := 0
	for i := range refs {
		if a.record(refs[i].address).keyLen() <= depth {
			refs[i], refs[short] = refs[short], refs[i]
			short++
		}
	}
	slices.SortFunc(refs[:short], a.compare) // versions of one key, mostly
	long := refs[short:]
	if len(long) == 0 {
		return
	}
	word := long[0].word
	for i := range long {
		long[i].word = kv.KeyWord(a.record(long[i].address).key(), depth)
	}
	a.sortWord(long, depth, 56)
	for i := range long {
		long[i].word = word
	}
}
