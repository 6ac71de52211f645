package mergeiter

import "math/bits"

// Tree is a tournament of k sorted sources: a tree of losers (Knuth, "The Art of
// Computer Programming", volume 3, section 5.4.1). It orders the sources by one word of
// the current entry of each, and asks Ties only about equal words.
//
// The caller keeps the sources. It begins a tournament with Clear and one Enter for each
// source, takes the current entry of the source Winner, moves that source to its next
// entry and reports the new word with Replay.
//
// The outcome of a match of two words cannot be predicted, so the tree plays it without a
// branch.
//
// Init must be called first. Not safe for concurrent use.
type Tree struct {
	ties Ties
	// nodes[0] is the winner. Node n > 0 holds the loser of the match between the
	// winners of nodes 2n and 2n+1; source i is the leaf len(nodes)+i.
	nodes []entrant
}

// entrant is the current entry of a source in the tree.
type entrant struct {
	word   uint64
	source int
}

// Ties decides the matches of sources whose words are equal.
type Ties interface {
	// Before reports whether the current entry of source i comes before that of j. A
	// source at its end comes after all others.
	Before(i, j int) bool
}

// LastWord is the word of a source at its end. Another source may have the same word.
const LastWord = ^uint64(0)

const noSource = -1

// Init makes t a tree of k sources, and keeps its memory. Clear must follow.
func (t *Tree) Init(k int, ties Ties) {
	t.ties = ties
	if cap(t.nodes) < k {
		t.nodes = make([]entrant, k)
	}
	t.nodes = t.nodes[:k]
}

// Clear begins a new tournament. Enter must follow for each source, in order.
func (t *Tree) Clear() {
	for n := range t.nodes {
		t.nodes[n].source = noSource
	}
}

// Enter adds source i with the word of its current entry.
func (t *Tree) Enter(i int, word uint64) {
	// The source stops at the first node without an opponent. The last source finds an
	// opponent at every node and decides the tournament.
	e, n := entrant{word, i}, (len(t.nodes)+i)/2
	for ; n > 0 && t.nodes[n].source != noSource; n /= 2 {
		if t.before(t.nodes[n], e) {
			t.nodes[n], e = e, t.nodes[n]
		}
	}
	t.nodes[n] = e
}

// Winner returns the source whose current entry comes first.
func (t *Tree) Winner() int { return t.nodes[0].source }

// Replay plays the matches of the winner again, which has moved to an entry with this
// word.
func (t *Tree) Replay(word uint64) {
	nodes := t.nodes
	e := entrant{word, nodes[0].source}
	for n := uint(len(nodes)+e.source) / 2; n > 0; n /= 2 {
		o := &nodes[n]
		if o.word == e.word {
			if t.ties.Before(o.source, e.source) {
				*o, e = e, *o
			}
			continue
		}
		_, less := bits.Sub64(o.word, e.word, 0)
		word := (o.word ^ e.word) & -less
		source := (o.source ^ e.source) & -int(less)
		o.word, e.word = o.word^word, e.word^word
		o.source, e.source = o.source^source, e.source^source
	}
	nodes[0] = e
}

// Second returns the source that would win without the winner, -1 if there is none. It is
// one of those that lost a match against the winner.
func (t *Tree) Second() int {
	n := (len(t.nodes) + t.nodes[0].source) / 2
	if n == 0 {
		return noSource
	}
	second := t.nodes[n]
	for n /= 2; n > 0; n /= 2 {
		if t.before(t.nodes[n], second) {
			second = t.nodes[n]
		}
	}
	return second.source
}

func (t *Tree) before(a, b entrant) bool {
	if a.word != b.word {
		return a.word < b.word
	}
	return t.ties.Before(a.source, b.source)
}
