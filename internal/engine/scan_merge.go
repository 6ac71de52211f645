package engine

import (
	"bytes"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/mergeiter"
)

// merge orders the items of several batches, which have no key in common, in a tournament
// over one word of each key (mergeiter.Tree).
//
// The word is eight bytes of the key after the common prefix of all keys of all batches,
// inverted in a backward walk. It distinguishes nearly all keys, however long that prefix
// is.
type merge struct {
	reverse bool
	depth   int // length of the common prefix that the words leave out
	tree    mergeiter.Tree
	sources []cursor
}

// newMerge returns a merge of k sources.
func newMerge(k int) *merge {
	m := &merge{sources: make([]cursor, k)}
	m.tree.Init(k, m)
	return m
}

// cursor is the position of the merge in the batch of a source. A cursor at the end of its
// batch stands for a source that has ended, and comes last.
type cursor struct {
	items []kv.Item
	next  int
	// words are those of the items from next on, followed by mergeiter.LastWord. They are
	// computed in one go, since the first access to a key that another processor has
	// written is slow.
	words []uint64
}

// slack is by how many bytes the common prefix of all keys may exceed depth before all
// words are computed again.
const slack = 4

func (c *cursor) ended() bool { return c.next == len(c.items) }

// step moves to the next item of the batch, and reports whether there is one.
func (c *cursor) step() bool {
	c.next++
	return c.next < len(c.items)
}

// key returns the current key. REQUIRES: !ended().
func (c *cursor) key() []byte { return c.items[c.next].Key }

// take replaces the batch of source i. REQUIRES: begin is called before the next winner.
func (m *merge) take(i int, items []kv.Item) {
	c := &m.sources[i]
	c.items, c.next, c.words = items, 0, c.words[:0]
}

// begin starts a tournament. It must be called after every change of a batch, since the
// common prefix may change.
func (m *merge) begin() {
	depth := m.common()
	anew := depth < m.depth || depth > m.depth+slack
	if anew {
		m.depth = depth
	}
	m.tree.Clear()
	for i := range m.sources {
		c := &m.sources[i]
		if anew || len(c.words) == 0 {
			m.spell(c)
		}
		m.tree.Enter(i, c.words[c.next])
	}
}

// spell computes the words of a source.
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
	c.words[n] = mergeiter.LastWord
}

// winner returns the item that comes next, nil if all sources have ended.
func (m *merge) winner() *kv.Item {
	c := &m.sources[m.tree.Winner()]
	if c.ended() {
		return nil
	}
	return &c.items[c.next]
}

// advance finds the next item after the winner has moved within its batch.
func (m *merge) advance() {
	c := &m.sources[m.tree.Winner()]
	m.tree.Replay(c.words[c.next])
}

// Before implements mergeiter.Ties.
func (m *merge) Before(i, j int) bool {
	x, y := &m.sources[i], &m.sources[j]
	if x.ended() || y.ended() {
		return !x.ended()
	}
	c := bytes.Compare(x.key(), y.key())
	return c != 0 && (c > 0) == m.reverse
}

// common returns the length of the common prefix of all keys. The first and the last key
// of each batch suffice, since the keys of a batch are ordered.
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
