package repair

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// survivors walks over the newest versions of the keys in some tables: those that are puts, and
// that no range tombstone of the tables hides.
type survivors struct {
	it     kv.Iterator
	covers *kv.RangeTombstones
	entry  kv.Entry // the one that the walk is at; its slices are used again
	ok     bool     // there is one
	begun  bool
}

// seek moves to the first survivor whose key is at least key.
func (s *survivors) seek(key []byte) error {
	s.begun = true
	return s.settle(s.it.SeekGE(key))
}

// forward is seek for a key that is not before the present one. It reads what lies between.
func (s *survivors) forward(key []byte) error {
	if !s.begun {
		return s.seek(key)
	}
	for s.ok && bytes.Compare(s.entry.Key, key) < 0 {
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

func (s *survivors) next() error { return s.settle(s.pass()) }

// pass moves the iterator past the versions of the present key.
func (s *survivors) pass() bool {
	ok := s.it.Next()
	for ok && bytes.Equal(s.it.Entry().Key, s.entry.Key) {
		ok = s.it.Next()
	}
	return ok
}

// settle moves on to a survivor, if the iterator is not at one.
func (s *survivors) settle(ok bool) error {
	for ok {
		e := s.it.Entry()
		if e.Kind == kv.KindRangeDelete {
			ok = s.it.Next()
			continue
		}
		key, value := append(s.entry.Key[:0], e.Key...), append(s.entry.Value[:0], e.Value...)
		s.entry = *e
		s.entry.Key, s.entry.Value = key, value
		if e.Kind == kv.KindPut && s.covers.Cover(key, kv.MaxSeqNum) <= e.Seq {
			s.ok = true
			return nil
		}
		ok = s.pass()
	}
	s.ok = false
	return s.it.Err()
}

// at returns the survivor of a key, to which the walk was moved; nil if there is none.
func (s *survivors) at(key []byte) *kv.Entry {
	if s == nil || !s.ok || !bytes.Equal(s.entry.Key, key) {
		return nil
	}
	return &s.entry
}

// candidates walks over the keys in gaps of which any source has a survivor.
type candidates struct {
	gaps    []gap
	entered bool // the sources are in gaps[0] or behind it
	sources []*survivors
}

// key returns the key that the walk is at; nil at the end.
func (c *candidates) key() ([]byte, error) {
	for len(c.gaps) > 0 {
		g := &c.gaps[0]
		var least []byte
		for _, s := range c.sources {
			if !c.entered {
				if err := s.seek(g.start); err != nil {
					return nil, err
				}
			}
			if s.ok && (least == nil || bytes.Compare(s.entry.Key, least) < 0) {
				least = s.entry.Key
			}
		}
		c.entered = true
		if least != nil && bytes.Compare(least, g.end) < 0 {
			return least, nil
		}
		c.gaps, c.entered = c.gaps[1:], false
	}
	return nil, nil
}

// pass moves on behind a key.
func (c *candidates) pass(key []byte) error {
	for _, s := range c.sources {
		if s.at(key) != nil {
			if err := s.next(); err != nil {
				return err
			}
		}
	}
	return nil
}
