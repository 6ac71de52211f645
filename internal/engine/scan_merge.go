package engine

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// merge orders the items of several batches, no two of which have the same key: a
// tree of losers (Knuth, "The Art of Computer Programming", volume 3, section
// 5.4.1) over one word of each key.
//
// The word is eight bytes of the key behind what all keys of all batches have in
// common. So it tells nearly all keys apart, however long a prefix they share, and
// a match is a comparison of two numbers, of which nobody can foresee the outcome;
// therefore it is played without a branch.
type merge struct {
	reverse bool
	depth   int // bytes that the words leave out, as all keys have them in common
	// tree[0] is the winner. Node n > 0 has the loser of the match played there,
	// between the winners of nodes 2n and 2n+1; source i is the leaf
	// len(sources)+i.
	tree    []entrant
	sources []cursor
}

// entrant is the key of a source in the tree: of the least word, in a backward walk
// of the greatest, whose bits are turned over.
type entrant struct {
	word   uint64
	source int
}

// cursor is where the merge stands in the batch of a source; at its end the source
// has ended, and comes last.
type cursor struct {
	items []kv.Item
	next  int
	// words are those of the items from next on, and at the end the last word of all:
	// spelled in one go, as a key that another processor has written takes long to come.
	words []uint64
}

// slack is how many bytes the keys may have in common beyond those that the words
// leave out. Then all words would have to be spelled anew to tell more keys apart.
const slack = 4

func (c *cursor) ended() bool { return c.next == len(c.items) }

// step moves to the next item of the batch, and reports whether there is one.
func (c *cursor) step() bool {
	c.next++
	return c.next < len(c.items)
}

// key returns the current key. REQUIRES: !ended().
func (c *cursor) key() []byte { return c.items[c.next].Key }

// take gives source i another batch. REQUIRES: begin before the next winner.
func (m *merge) take(i int, items []kv.Item) {
	c := &m.sources[i]
	c.items, c.next, c.words = items, 0, c.words[:0]
}

// begin plays all matches anew. It comes after every change of a batch: what the
// keys have in common is another then.
func (m *merge) begin() {
	depth := m.common()
	anew := depth < m.depth || depth > m.depth+slack
	if anew {
		m.depth = depth
	}
	k := len(m.sources)
	const nobody = -1
	for n := range m.tree {
		m.tree[n].source = nobody
	}
	for i := range m.sources {
		c := &m.sources[i]
		if anew || len(c.words) == 0 {
			m.spell(c)
		}
		// Wait at the first match without an opponent; the last source to come finds
		// one everywhere and decides the tournament.
		e, n := entrant{c.words[c.next], i}, (k+i)/2
		for ; n > 0 && m.tree[n].source != nobody; n /= 2 {
			if m.before(m.tree[n], e) {
				m.tree[n], e = e, m.tree[n]
			}
		}
		m.tree[n] = e
	}
}

// spell writes down the words of a source.
func (m *merge) spell(c *cursor) {
	n := len(c.items)
	c.words = slices.Grow(c.words[:0], n+1)[:n+1]
	turn := uint64(0)
	if m.reverse {
		turn = ^turn
	}
	for i := c.next; i < n; i++ {
		c.words[i] = kv.KeyWord(c.items[i].Key, m.depth) ^ turn
	}
	c.words[n] = ^uint64(0)
}

// winner returns the item that comes next, nil if all sources have ended.
func (m *merge) winner() *kv.Item {
	c := &m.sources[m.tree[0].source]
	if c.ended() {
		return nil
	}
	return &c.items[c.next]
}

// advance plays the matches of the winner again, which has moved within its batch.
func (m *merge) advance() {
	i := m.tree[0].source
	c := &m.sources[i]
	e := entrant{c.words[c.next], i}
	for n := (len(m.tree) + e.source) / 2; n > 0; n /= 2 {
		t := &m.tree[n]
		if t.word == e.word {
			if m.before(*t, e) {
				*t, e = e, *t
			}
			continue
		}
		_, less := bits.Sub64(t.word, e.word, 0)
		word := (t.word ^ e.word) & -less
		source := (t.source ^ e.source) & -int(less)
		t.word, e.word = t.word^word, e.word^word
		t.source, e.source = t.source^source, e.source^source
	}
	m.tree[0] = e
}

// before reports whether a goes before b.
func (m *merge) before(a, b entrant) bool {
	if a.word != b.word {
		return a.word < b.word
	}
	x, y := &m.sources[a.source], &m.sources[b.source]
	if x.ended() || y.ended() {
		return !x.ended()
	}
	c := bytes.Compare(x.key(), y.key())
	return c != 0 && (c > 0) == m.reverse
}

// common returns how many bytes all keys have in common: those between the first
// and the last of each batch lie between them in order.
func (m *merge) common() int {
	var some []byte
	n := 0
	for i := range m.sources {
		c := &m.sources[i]
		if c.ended() {
			continue
		}
		if first := c.key(); some == nil {
			some, n = first, len(first)
		} else {
			n = kv.CommonPrefix(some[:n], first)
		}
		n = kv.CommonPrefix(some[:n], c.items[len(c.items)-1].Key)
	}
	return n
}
