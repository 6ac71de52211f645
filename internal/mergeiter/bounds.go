package mergeiter

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// Bounded returns the part of it that lies in the range: First goes to its
// start, a seek before the start too, and behind its last key the iterator is at
// its end.
//
// Ownership: Bounded takes it; Close closes it. The slices of r are kept: they
// must not change before Close. Errors: those of it.
func Bounded(it kv.Iterator, r kv.Range) kv.Iterator {
	return &bounded{Iterator: it, bounds: r}
}

type bounded struct {
	kv.Iterator
	bounds kv.Range
}

func (b *bounded) First() bool {
	if len(b.bounds.Start) == 0 {
		b.Iterator.First()
	} else {
		b.Iterator.SeekGE(b.bounds.Start)
	}
	return b.Valid()
}

func (b *bounded) SeekGE(key []byte) bool {
	if bytes.Compare(key, b.bounds.Start) < 0 {
		return b.First()
	}
	b.Iterator.SeekGE(key)
	return b.Valid()
}

func (b *bounded) Next() bool {
	return b.Iterator.Valid() && b.Iterator.Next() && b.Valid()
}

func (b *bounded) Valid() bool {
	if !b.Iterator.Valid() {
		return false
	}
	return len(b.bounds.End) == 0 || bytes.Compare(b.Iterator.Entry().Key, b.bounds.End) < 0
}
