package mergeiter

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// Bounded returns an iterator over the part of it that lies in the range: First and Last
// go to the first and last key of the range, as do SeekGE before the range and SeekLT
// after it, and a walk that leaves the range is at its end.
//
// Ownership: Bounded owns it; Close closes it. The slices of r are kept: they
// must not change before Close. Errors: those of it.
func Bounded(it kv.Iterator, r kv.Range) kv.Iterator {
	return &bounded{Iterator: it, bounds: r}
}

type bounded struct {
	kv.Iterator
	bounds kv.Range
	walk   direction
}

func (b *bounded) First() bool {
	b.walk = forward
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
	b.walk = forward
	b.Iterator.SeekGE(key)
	return b.Valid()
}

func (b *bounded) Last() bool {
	b.walk = backward
	if len(b.bounds.End) == 0 {
		b.Iterator.Last()
	} else {
		b.Iterator.SeekLT(b.bounds.End)
	}
	return b.Valid()
}

func (b *bounded) SeekLT(key []byte) bool {
	if len(b.bounds.End) > 0 && bytes.Compare(key, b.bounds.End) > 0 {
		return b.Last()
	}
	b.walk = backward
	b.Iterator.SeekLT(key)
	return b.Valid()
}

func (b *bounded) Next() bool {
	b.walk.must(forward)
	return b.Iterator.Valid() && b.Iterator.Next() && b.Valid()
}

func (b *bounded) Prev() bool {
	b.walk.must(backward)
	return b.Iterator.Valid() && b.Iterator.Prev() && b.Valid()
}

// Valid checks only the bound in the direction of the walk, which began within the
// other one.
func (b *bounded) Valid() bool {
	if !b.Iterator.Valid() {
		return false
	}
	key := b.Iterator.Entry().Key
	if b.walk == backward {
		return bytes.Compare(key, b.bounds.Start) >= 0
	}
	return len(b.bounds.End) == 0 || bytes.Compare(key, b.bounds.End) < 0
}
