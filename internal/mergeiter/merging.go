package mergeiter

import (
	"bytes"
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

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
	m := new(merging)
	m.init(sources)
	return m
}

// source is an input and its current entry, nil at its end.
type source struct {
	kv.Iterator
	entry  *kv.Entry
	filler scanbatch.Filler // for Visible; nil if the source has none
}

// merging orders its sources with a Tree. The words are eight bytes of the keys after a
// prefix that all current keys have in common, inverted on a backward walk.
//
// It is valid when the winner has an entry and err is nil.
type merging struct {
	sources []source
	tree    Tree
	prefix  []byte
	flip    uint64
	walk    direction
	ties    int // matches since the last tournament began that the words did not decide
	err     error
}

// tieLimit is after how many ties a tournament begins anew with the prefix that the keys
// have in common by then. Guessed: a tournament costs as much as a few ties.
const tieLimit = 64

// init makes m a merge of these sources, and keeps its memory.
func (m *merging) init(sources []kv.Iterator) {
	m.sources, m.prefix, m.err = m.sources[:0], m.prefix[:0], nil
	for _, it := range sources {
		m.sources = append(m.sources, source{Iterator: it})
	}
	m.tree.Init(len(sources), m)
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

// restart positions every source for the walk and begins a tournament.
func (m *merging) restart(walk direction, move func(kv.Iterator) bool) bool {
	m.walk, m.flip = walk, walk.flip()
	for i := range m.sources {
		if s := &m.sources[i]; !m.moved(s, move(s.Iterator)) {
			return false
		}
	}
	m.prefix = m.common()
	m.compete()
	return m.Valid()
}

func (m *merging) Next() bool {
	m.walk.must(forward)
	if !m.Valid() {
		return false
	}
	s := m.winner()
	return m.replay(s, s.Iterator.Next())
}

func (m *merging) Prev() bool {
	m.walk.must(backward)
	if !m.Valid() {
		return false
	}
	s := m.winner()
	return m.replay(s, s.Iterator.Prev())
}

// replay finds the next winner after the last one, s, has moved.
func (m *merging) replay(s *source, valid bool) bool {
	if valid {
		return m.place(s, s.Iterator.Entry())
	}
	if !m.moved(s, false) {
		return false
	}
	m.tree.Replay(LastWord)
	return m.Valid()
}

// place finds the next winner after the last one, s, has moved to this entry.
func (m *merging) place(s *source, e *kv.Entry) bool {
	s.entry = e
	switch depth := len(m.prefix); {
	case len(m.sources) == 1:
	case depth > 0 && !bytes.HasPrefix(e.Key, m.prefix):
		m.prefix = m.prefix[:kv.CommonPrefix(e.Key, m.prefix)]
		m.compete()
	case m.ties > tieLimit:
		m.prefix = m.common()
		m.compete()
	case len(e.Key) >= depth+8:
		m.tree.Replay(binary.BigEndian.Uint64(e.Key[depth:]) ^ m.flip)
	default:
		m.tree.Replay(kv.KeyWord(e.Key, depth) ^ m.flip)
	}
	return m.winner().entry != nil
}

// moved records the entry of a source after a move. It reports false if the source
// failed.
func (m *merging) moved(s *source, valid bool) bool {
	s.entry = nil
	if valid {
		s.entry = s.Iterator.Entry()
	} else if err := s.Err(); err != nil {
		m.err = err
	}
	return m.err == nil
}

// compete begins a tournament of the current entries. All keys have the prefix.
func (m *merging) compete() {
	m.ties = 0
	m.tree.Clear()
	for i := range m.sources {
		m.tree.Enter(i, m.word(m.sources[i].entry))
	}
}

// common returns the prefix that all current keys have in common. It returns none for fewer
// than three keys: one match costs less than to check that a key has the prefix.
func (m *merging) common() []byte {
	var some []byte
	n := 0
	for i := range m.sources {
		e := m.sources[i].entry
		switch {
		case e == nil:
			continue
		case n == 0:
			some = e.Key
		default:
			some = some[:kv.CommonPrefix(some, e.Key)]
		}
		n++
	}
	if n < 3 {
		some = nil
	}
	return append(m.prefix[:0], some...)
}

// word returns the word of an entry. REQUIRES: its key, if any, has the prefix.
func (m *merging) word(e *kv.Entry) uint64 {
	if e == nil {
		return LastWord
	}
	return kv.KeyWord(e.Key, len(m.prefix)) ^ m.flip
}

// Before implements Ties.
func (m *merging) Before(i, j int) bool {
	m.ties++
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

func (m *merging) winner() *source { return &m.sources[m.tree.Winner()] }

func (m *merging) Valid() bool {
	return m.err == nil && len(m.sources) > 0 && m.winner().entry != nil
}

func (m *merging) Entry() *kv.Entry { return m.winner().entry }
func (m *merging) Err() error       { return m.err }

func (m *merging) Close() error {
	for i := range m.sources {
		if err := m.sources[i].Close(); m.err == nil {
			m.err = err
		}
	}
	clear(m.sources)
	m.sources = m.sources[:0]
	return m.err
}
