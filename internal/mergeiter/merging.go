package mergeiter

import "github.com/kvd-db/kvd/internal/kv"

// New returns an iterator over all entries of all sources in the order of
// kv.Compare. Sources come newest first: should two hold an entry of the same
// key and number, which only range tombstones can, the newer source goes first.
//
// Ownership: New takes the sources; Close closes every one. Errors: the first of
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

// source is an input and the entry that it stands on, nil at its end.
type source struct {
	kv.Iterator
	entry *kv.Entry
}

// merging is a tournament of its sources. tree[0] is the source with the
// smallest entry. Node n > 0 has the loser of the match played there, between
// the winners of nodes 2n and 2n+1; source i is the leaf len(sources)+i.
//
// It is valid when the winner stands on an entry and err is nil.
type merging struct {
	sources []source
	tree    []int
	err     error
}

func (m *merging) First() bool {
	return m.restart(kv.Iterator.First)
}

func (m *merging) SeekGE(key []byte) bool {
	return m.restart(func(it kv.Iterator) bool { return it.SeekGE(key) })
}

// restart moves every source and plays all matches.
func (m *merging) restart(move func(kv.Iterator) bool) bool {
	for i := range m.sources {
		if !m.moved(i, move(m.sources[i].Iterator)) {
			return false
		}
	}
	const nobody = -1
	for n := range m.tree {
		m.tree[n] = nobody
	}
	for i := range m.sources {
		// Wait at the first match without an opponent; the last source to come
		// finds one everywhere and decides the tournament.
		winner, n := i, (len(m.sources)+i)/2
		for ; n > 0 && m.tree[n] != nobody; n /= 2 {
			winner = m.play(n, winner)
		}
		m.tree[n] = winner
	}
	return m.Valid()
}

func (m *merging) Next() bool {
	if !m.Valid() {
		return false
	}
	winner := m.tree[0]
	if !m.moved(winner, m.sources[winner].Iterator.Next()) {
		return false
	}
	for n := (len(m.sources) + winner) / 2; n > 0; n /= 2 {
		winner = m.play(n, winner)
	}
	m.tree[0] = winner
	return m.Valid()
}

// moved notes where source i stands after a move. It reports false if the source
// failed.
func (m *merging) moved(i int, valid bool) bool {
	s := &m.sources[i]
	s.entry = nil
	if valid {
		s.entry = s.Iterator.Entry()
	} else if err := s.Err(); err != nil && !bugErrorIsEnd {
		m.err = err
	}
	return m.err == nil
}

// play lets the challenger meet who waits at node n: the loser stays.
func (m *merging) play(n, challenger int) (winner int) {
	if waiting := m.tree[n]; m.before(waiting, challenger) {
		m.tree[n] = challenger
		return waiting
	}
	return challenger
}

// before reports whether source i goes before source j. One at its end goes
// last.
func (m *merging) before(i, j int) bool {
	a, b := m.sources[i].entry, m.sources[j].entry
	if a == nil || b == nil {
		return b == nil && (a != nil || i < j)
	}
	c := kv.Compare(a.Key, a.Seq, b.Key, b.Seq)
	return c < 0 || (c == 0 && i < j)
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
