package mergeiter

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// Visible returns what a reader sees of many sources, in batches: for each key of a
// range the newest version of at most View.At, unless that version is a tombstone, has
// expired, or is older than a range tombstone that covers the key.
//
// The zero value is ready for Init. Used by one goroutine at a time.
type Visible struct {
	view   scanbatch.View
	bounds kv.Range
	merge  merging // of the entries in the range; a source that has left it is at its end
	walk   direction
	begun  bool
}

// Init begins a walk over the range, backward if reverse is set. The sources must
// be new; their order does not matter.
//
// Ownership: Visible owns the sources, and Close closes them; it keeps the bounds until
// then.
func (v *Visible) Init(view scanbatch.View, bounds kv.Range, reverse bool, sources []kv.Iterator) {
	v.view, v.bounds, v.walk, v.begun = view, bounds, direction(reverse), false
	v.merge.init(sources)
	for i := range v.merge.sources {
		s := &v.merge.sources[i]
		s.filler, _ = s.Iterator.(scanbatch.Filler)
	}
}

// Fill adds the next items to b, until b is full. It returns false at the end of
// the range and on an error, for good: see Err. What b holds then came before it.
//
// Errors: the first of any source.
func (v *Visible) Fill(b *scanbatch.Batch) (more bool) {
	if !v.begun {
		v.begin()
	}
	for v.merge.Valid() {
		if b.Full() {
			return true
		}
		s := v.merge.winner()
		key := s.entry.Key
		bound, tied := v.bound(key)
		switch {
		case tied:
			v.mergeKey(b)
		case s.filler != nil && (v.walk == forward || !bytes.Equal(key, bound)):
			b.Steps -= s.filler.Fill(b, &v.view, bound)
			v.moved(s, s.Valid())
		default:
			b.Stage(key)
			valid, sure := v.versions(b, s)
			if sure {
				b.Commit(&v.view)
			}
			v.moved(s, valid)
		}
	}
	return false
}

// Err returns why Fill returned false, nil at the end.
func (v *Visible) Err() error { return v.merge.err }

// Close closes the sources.
func (v *Visible) Close() error {
	v.begun, v.view, v.bounds = true, scanbatch.View{}, kv.Range{}
	return v.merge.Close()
}

// begin positions every source at the start of the walk.
func (v *Visible) begin() {
	v.begun = true
	v.merge.restart(v.walk, func(it kv.Iterator) bool {
		valid := false
		switch {
		case v.walk == backward && len(v.bounds.End) == 0:
			valid = it.Last()
		case v.walk == backward:
			valid = it.SeekLT(v.bounds.End)
		case len(v.bounds.Start) == 0:
			valid = it.First()
		default:
			valid = it.SeekGE(v.bounds.Start)
		}
		return valid && v.inside(it.Entry().Key)
	})
}

// inside reports whether a key that a source has moved to lies in the range.
func (v *Visible) inside(key []byte) bool {
	if v.walk == backward {
		return bytes.Compare(key, v.bounds.Start) >= 0
	}
	return len(v.bounds.End) == 0 || bytes.Compare(key, v.bounds.End) < 0
}

// bound returns a key before which only the winner, which is at key, has entries of the
// range: the key of the second source, or the bound of the range, nil if there is none. On
// a backward walk the latter is the first key of the range, which an entry may equal. tied
// says that the second source is at the same key.
func (v *Visible) bound(key []byte) (bound []byte, tied bool) {
	if i := v.merge.tree.Second(); i >= 0 && v.merge.sources[i].entry != nil {
		bound = v.merge.sources[i].entry.Key
		return bound, bytes.Equal(key, bound)
	}
	if v.walk == backward {
		return v.bounds.Start, false
	}
	if len(v.bounds.End) == 0 {
		return nil, false
	}
	return v.bounds.End, false
}

// moved finds the next winner after the last one, s, has moved.
func (v *Visible) moved(s *source, valid bool) {
	if !valid {
		v.merge.replay(s, false)
	} else if e := s.Iterator.Entry(); v.inside(e.Key) {
		v.merge.place(s, e)
	} else {
		s.entry = nil
		v.merge.tree.Replay(LastWord)
	}
}

// mergeKey adds the first key, of which several sources have versions.
func (v *Visible) mergeKey(b *scanbatch.Batch) {
	b.Stage(v.merge.winner().entry.Key)
	sure := true
	for v.merge.Valid() && bytes.Equal(v.merge.winner().entry.Key, b.StagedKey()) {
		s := v.merge.winner()
		valid, found := v.versions(b, s)
		sure = sure && found
		v.moved(s, valid)
	}
	if sure {
		b.Commit(&v.view)
	}
}

// versions steps over all versions that a source has of the staged key, and offers
// b the newest that the view sees. sure is false if an error came before it was found,
// because a newer version may follow the error.
func (v *Visible) versions(b *scanbatch.Batch, s *source) (valid, sure bool) {
	met := false
	for valid = true; valid; {
		e := s.Entry()
		if !bytes.Equal(e.Key, b.StagedKey()) {
			break
		}
		b.Steps--
		if !met && v.view.Sees(e.Seq, e.Kind) {
			b.Version(e)
			met = v.walk == forward // the others are older
		}
		if v.walk == backward {
			valid = s.Prev()
		} else {
			valid = s.Next()
		}
	}
	return valid, valid || met || s.Err() == nil
}
