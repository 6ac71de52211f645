package kvd

import (
	"bytes"
)

// Range is the set of keys k with Start <= k < End. An empty Start or End is no bound.
type Range struct{ Start, End []byte }

// All returns the range of all keys.
func All() Range { return Range{} }

// Between returns the range of the keys k with start <= k < end. It refers to the slices.
func Between(start, end []byte) Range { return Range{Start: start, End: end} }

// Prefix returns the range of the keys that begin with p, which it copies.
func Prefix(p []byte) Range {
	r := Range{Start: bytes.Clone(p)}
	// The end is the smallest key above all keys with the prefix: the prefix up to its last
	// byte below 0xff, with that byte incremented.
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			r.End = bytes.Clone(p[:i+1])
			r.End[i]++
			break
		}
	}
	return r
}

func (r Range) clone() Range { return Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)} }

func (r Range) contains(key []byte) bool {
	return bytes.Compare(r.Start, key) <= 0 && (len(r.End) == 0 || bytes.Compare(key, r.End) < 0)
}
