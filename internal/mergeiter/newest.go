package mergeiter

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// View is how a reader looks at versions.
type View struct {
	// At is the number that the reader reads at.
	At kv.SeqNum
	// Now is the reader's clock, Unix time in milliseconds: what expires by then
	// is not shown. Zero: nothing has expired.
	Now uint64
	// Covers are the range tombstones of everything that is read, of each source
	// the whole set. Nil ones are empty.
	Covers []*kv.RangeTombstones
}

// Newest returns what a reader sees of it: for each key the newest version of at
// most v.At, and nothing for a key of which that version is a tombstone, has
// expired, or is older than a range tombstone that covers the key. Range
// tombstones that stand in it are passed over; v.Covers has them.
//
// Ownership: Newest takes it; Close closes it. Covers are kept. An entry that a
// backward walk gives is a copy, which holds until the next move like any other.
// Errors: those of it end the iterator for good.
func Newest(it kv.Iterator, v View) kv.Iterator {
	n := &newest{it: it, view: v}
	n.kept.Value = []byte{} // never nil: an empty value is a value
	n.view.Covers = nil
	for _, c := range v.Covers {
		if c.Len() > 0 {
			n.view.Covers = append(n.view.Covers, c)
		}
	}
	return n
}

// newest walks forward with it standing on the entry that is shown. Walking
// backward it meets the versions of a key oldest first, so it stands before the
// first of them, on the key before, and what is shown is in kept.
type newest struct {
	it    kv.Iterator
	view  View
	walk  direction
	key   []byte   // forward: the key whose visible version was met; its older ones are hidden
	met   bool     // key has a meaning: no key is nil
	kept  kv.Entry // backward: the newest visible version of the last key that was gathered
	shown bool     // backward: kept is what the iterator stands on
	err   error    // of closing it
}

func (n *newest) First() bool { return n.settle(n.begin(forward).First()) }

func (n *newest) SeekGE(key []byte) bool { return n.settle(n.begin(forward).SeekGE(key)) }

func (n *newest) Next() bool {
	n.walk.must(forward)
	return n.Valid() && n.settle(n.it.Next())
}

func (n *newest) Last() bool { return n.gather(n.begin(backward).Last()) }

func (n *newest) SeekLT(key []byte) bool { return n.gather(n.begin(backward).SeekLT(key)) }

func (n *newest) Prev() bool {
	n.walk.must(backward)
	return n.shown && n.gather(n.it.Valid())
}

// begin forgets the last walk and returns what a new one positions.
func (n *newest) begin(walk direction) kv.Iterator {
	n.walk, n.met, n.shown = walk, false, false
	return n.it
}

// settle steps forward over what is hidden, from where it stands.
func (n *newest) settle(valid bool) bool {
	for ; valid; valid = n.it.Next() {
		e := n.it.Entry()
		if !n.visible(e) || (n.met && bytes.Equal(e.Key, n.key)) {
			continue
		}
		n.key, n.met = append(n.key[:0], e.Key...), true
		if n.alive(e) {
			return true
		}
	}
	return false
}

// gather steps backward over all versions of one key after the other, until one
// key has something to show.
func (n *newest) gather(valid bool) bool {
	n.shown = false
	for valid && !n.shown {
		n.key = append(n.key[:0], n.it.Entry().Key...)
		n.kept.Seq = 0
		for ; valid && bytes.Equal(n.it.Entry().Key, n.key); valid = n.it.Prev() {
			if e := n.it.Entry(); n.visible(e) {
				n.keep(e)
			}
		}
		if !valid && n.it.Err() != nil {
			return false // newer versions of the key may be behind the error
		}
		n.shown = n.kept.Seq != 0 && n.alive(&n.kept)
	}
	return n.shown
}

// keep copies e, a version of key, over what was kept.
func (n *newest) keep(e *kv.Entry) {
	value := append(n.kept.Value[:0], e.Value...)
	n.kept = *e
	n.kept.Key, n.kept.Value = n.key, value
}

// visible reports whether e is a version of its key that the reader may see.
func (n *newest) visible(e *kv.Entry) bool {
	return e.Seq <= n.view.At && e.Kind != kv.KindRangeDelete
}

// alive reports whether e, the newest visible version of its key, is shown.
func (n *newest) alive(e *kv.Entry) bool {
	return e.Kind != kv.KindDelete && (e.Expiry == 0 || e.Expiry > n.view.Now) &&
		(len(n.view.Covers) == 0 || !n.covered(e))
}

func (n *newest) covered(e *kv.Entry) bool {
	for _, c := range n.view.Covers {
		if c.Cover(e.Key, n.view.At) > e.Seq {
			return true
		}
	}
	return false
}

func (n *newest) Valid() bool {
	if n.walk == backward {
		return n.shown
	}
	return n.it.Valid()
}

func (n *newest) Entry() *kv.Entry {
	if n.walk == backward {
		return &n.kept
	}
	return n.it.Entry()
}

func (n *newest) Err() error {
	if n.err != nil {
		return n.err
	}
	return n.it.Err()
}

func (n *newest) Close() error {
	n.shown = false
	n.err = n.it.Close()
	return n.err
}
