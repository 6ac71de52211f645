package mergeiter

import (
	"bytes"
	"sort"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// Visible returns what a reader sees of many sources, in batches: for each key of a
// range the newest version of at most View.At, unless that version is a tombstone, has
// expired, or is older than a range tombstone that covers the key.
//
// The zero value is ready for Init. Used by one goroutine at a time.
type Visible struct {
	view    scanbatch.View
	bounds  kv.Range
	walk    direction
	sources []kv.Iterator
	begun   bool
	heads   []head // the sources that are not at their end, by their first key
	err     error
}

// head is a source and its current key.
type head struct {
	kv.Iterator
	filler scanbatch.Filler // nil if it has none
	key    []byte           // borrowed until it moves
}

// Init begins a walk over the range, backward if reverse is set. The sources must
// be new; their order does not matter.
//
// Ownership: Visible owns the sources, and Close closes them; it keeps the slices
// that it is given until then.
func (v *Visible) Init(view scanbatch.View, bounds kv.Range, reverse bool, sources []kv.Iterator) {
	*v = Visible{view: view, bounds: bounds, walk: direction(reverse), sources: sources, heads: v.heads[:0]}
}

// Fill adds the next items to b, until b is full. It returns false at the end of
// the range and on an error, for good: see Err. What b holds then came before it.
//
// Errors: the first of any source.
func (v *Visible) Fill(b *scanbatch.Batch) (more bool) {
	if !v.begun {
		v.begin()
	}
	for len(v.heads) > 0 && v.err == nil {
		if b.Full() {
			return true
		}
		h := &v.heads[0]
		tied := len(v.heads) > 1 && bytes.Equal(h.key, v.heads[1].key)
		switch {
		case tied:
			v.merge(b)
		case h.filler != nil && (v.walk == forward || v.before(h.key, v.bound())):
			b.Steps -= h.filler.Fill(b, &v.view, v.bound())
			v.moved(h.Valid())
		default:
			b.Stage(h.key)
			valid, sure := v.versions(b, h)
			if sure {
				b.Commit(&v.view)
			}
			v.moved(valid)
		}
	}
	return false
}

// Err returns why Fill returned false, nil at the end.
func (v *Visible) Err() error { return v.err }

// Close closes the sources.
func (v *Visible) Close() error {
	for _, it := range v.sources {
		if err := it.Close(); v.err == nil {
			v.err = err
		}
	}
	err := v.err
	clear(v.heads[:cap(v.heads)])
	*v = Visible{begun: true, heads: v.heads[:0], err: err}
	return err
}

// begin positions every source at the start of the walk.
func (v *Visible) begin() {
	v.begun = true
	for _, it := range v.sources {
		h := head{Iterator: it}
		h.filler, _ = it.(scanbatch.Filler)
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
		if v.inside(&h, valid) {
			v.heads = append(v.heads, h)
			v.sink(len(v.heads) - 1)
		}
		if v.err != nil {
			return
		}
	}
}

// sink moves the last head to its place among those before it.
func (v *Visible) sink(i int) {
	for ; i > 0 && v.before(v.heads[i].key, v.heads[i-1].key); i-- {
		v.heads[i], v.heads[i-1] = v.heads[i-1], v.heads[i]
	}
}

// inside records the key of a source after a move, and reports whether the source is
// at an entry of the range.
func (v *Visible) inside(h *head, valid bool) bool {
	if !valid {
		if err := h.Err(); err != nil {
			v.err = err
		}
		return false
	}
	h.key = h.Entry().Key
	if v.walk == backward {
		return bytes.Compare(h.key, v.bounds.Start) >= 0
	}
	return len(v.bounds.End) == 0 || bytes.Compare(h.key, v.bounds.End) < 0
}

// before reports whether the walk reaches key a before key b.
func (v *Visible) before(a, b []byte) bool {
	c := bytes.Compare(a, b)
	return c != 0 && direction(c > 0) == v.walk
}

// bound returns a key before which only the first head has entries of the range: the
// key of the second head, or the bound of the range, nil if there is none. On a backward
// walk the latter is the first key of the range, which an entry may equal.
func (v *Visible) bound() []byte {
	switch {
	case len(v.heads) > 1:
		return v.heads[1].key
	case v.walk == backward:
		return v.bounds.Start
	case len(v.bounds.End) == 0:
		return nil
	}
	return v.bounds.End
}

// moved restores the order of heads after the first one has moved. It mostly stays
// first or becomes second, because runs differ in size.
func (v *Visible) moved(valid bool) {
	if !v.inside(&v.heads[0], valid) {
		n := copy(v.heads, v.heads[1:])
		v.heads[n] = head{}
		v.heads = v.heads[:n]
		return
	}
	if len(v.heads) == 1 || !v.before(v.heads[1].key, v.heads[0].key) {
		return
	}
	first := v.heads[0]
	rest := v.heads[2:]
	n := sort.Search(len(rest), func(i int) bool { return !v.before(rest[i].key, first.key) })
	copy(v.heads, v.heads[1:n+2])
	v.heads[n+1] = first
}

// merge adds the first key, of which several sources have versions.
func (v *Visible) merge(b *scanbatch.Batch) {
	b.Stage(v.heads[0].key)
	sure := true
	for len(v.heads) > 0 && bytes.Equal(v.heads[0].key, b.StagedKey()) {
		valid, found := v.versions(b, &v.heads[0])
		sure = sure && found
		v.moved(valid)
	}
	if sure {
		b.Commit(&v.view)
	}
}

// versions steps over all versions that a source has of the staged key, and offers
// b the newest that the view sees. sure is false if an error came before it was found,
// because a newer version may follow the error.
func (v *Visible) versions(b *scanbatch.Batch, h *head) (valid, sure bool) {
	met := false
	for valid = true; valid && bytes.Equal(h.Entry().Key, b.StagedKey()); {
		b.Steps--
		if e := h.Entry(); !met && v.view.Sees(e.Seq, e.Kind) {
			b.Version(e)
			met = v.walk == forward // the others are older
		}
		if v.walk == backward {
			valid = h.Prev()
		} else {
			valid = h.Next()
		}
	}
	return valid, valid || met || h.Err() == nil
}
