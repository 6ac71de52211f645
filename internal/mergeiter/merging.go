package mergeiter

import "github.com/kvd-db/kvd/internal/kv"

// New returns an iterator over all entries of all sources in the order of
// kv.Compare, or backward. Sources are given newest first: if two hold an entry of
// the same key and number, which only range tombstones can be, that of the newer source
// comes first, and last on a backward walk.
//
// Ownership: New owns the sources; Close closes every one. Errors: the first of
// any source ends the merge for good, see I1 of the package.
func New(sources ...kv.Iterator) kv.Iterator {
	if len(sources) == 1 {
		return sources[0]
	}
	m := &merging{sources: make([]source, len(sources)), tree: make([]int, len(sources))}
	for i, it := range sources {
		m.sources[i].Iterator = it
	}
	return m
}

// source is an input and its current entry, nil at its end.
type source struct {
	kv.Iterator
	entry *kv.Entry
}

// merging is a tournament of its sources. tree[0] is the source whose entry comes
// first in the direction of the walk. Node n > 0 holds the loser of the match between
// the winners of nodes 2n and 2n+1; source i is the leaf len(sources)+i.
//
// It is valid when the winner has an entry and err is nil.
type merging struct {
	sources []source
	tree    []int
	walk    direction
	err     error
}

func (m *merging) First() bool {
	return m.restart(forward, kv.Iterator.First)
}

func (m *merging) SeekGE(key []byte) bool {
	return m.restart(forward, func(it kv.Iterator) bool { return it.SeekGE(key) })
}

func (m *merging) Last() bool {
	return m.restart(backward, kv.Iterator.Last)
}

func (m *merging) SeekLT(key []byte) bool {
	return m.restart(backward, func(it kv.Iterator) bool { return it.SeekLT(key) })
}

// restart positions every source for the walk and plays all matches.
func (m *merging) restart(walk direction, move func(kv.Iterator) bool) bool {
	m.walk = walk
	for i := range m.sources {
		if !m.moved(i, move(m.sources[i].Iterator)) {
			return false
		}
	}
	const none = -1
	for n := range m.tree {
		m.tree[n] = none
	}
	for i := range m.sources {
		// A source stops at the first node without an opponent. The last source finds an
		// opponent at every node and decides the tournament.
		winner, n := i, (len(m.sources)+i)/2
		for ; n > 0 && m.tree[n] != none; n /= 2 {
			winner = m.play(n, winner)
		}
		m.tree[n] = winner
	}
	return m.Valid()
}

func (m *merging) Next() bool {
	m.walk.must(forward)
	if !m.Valid() {
		return false
	}
	winner := m.tree[0]
	return m.moved(winner, m.sources[winner].Iterator.Next()) && m.replay(winner)
}

func (m *merging) Prev() bool {
	m.walk.must(backward)
	if !m.Valid() {
		return false
	}
	winner := m.tree[0]
	return m.moved(winner, m.sources[winner].Iterator.Prev()) && m.replay(winner)
}

// replay plays the matches of the last winner again after it has moved.
func (m *merging) replay(winner int) bool {
	for n := (len(m.sources) + winner) / 2; n > 0; n /= 2 {
		winner = m.play(n, winner)
	}
	m.tree[0] = winner
	return m.Valid()
}

// moved records the entry of source i after a move. It reports false if the source
// failed.
func (m *merging) moved(i int, valid bool) bool {
	s := &m.sources[i]
	s.entry = nil
	if valid {
		s.entry = s.Iterator.Entry()
	} else if err := s.Err(); err != nil {
		m.err = err
	}
	return m.err == nil
}

// play matches the challenger against the source at node n, where the loser stays.
func (m *merging) play(n, challenger int) (winner int) {
	if waiting := m.tree[n]; m.before(waiting, challenger) {
		m.tree[n] = challenger
		return waiting
	}
	return challenger
}

// before reports whether source i goes before source j in the direction of the
// walk. A source at its end goes last.
func (m *merging) before(i, j int) bool {
	a, b := m.sources[i].entry, m.sources[j].entry
	if a == nil || b == nil {
		return b == nil && (a != nil || i < j)
	}
	c := kv.Compare(a.Key, a.Seq, b.Key, b.Seq)
	if c == 0 {
		c = i - j
	}
	return direction(c > 0) == m.walk
}

func (m *merging) Valid() bool {
	return m.err == nil && len(m.sources) > 0 && m.sources[m.tree[0]].entry != nil
}

func (m *merging) Entry() *kv.Entry { return m.sources[m.tree[0]].entry }
func (m *merging) Err() error       { return m.err }

func (m *merging) Close() error {
	for i := range m.sources {
		if err := m.sources[i].Close(); m.err == nil {
			m.err = err
		}
	}
	m.sources = nil
	return m.err
}
