package kv

import (
	"bytes"
	"cmp"
	"slices"
)

// RangeTombstones finds the range tombstone that covers a key. It is immutable and safe
// for concurrent use. A nil *RangeTombstones is empty.
type RangeTombstones struct {
	tombstones []Entry  // by start, then newest first
	maxEnd     [][]byte // maxEnd[i] is the largest end among tombstones[:i+1]
}

// NewRangeTombstones sorts the tombstones, entries of KindRangeDelete, and takes
// ownership of them and their slices.
func NewRangeTombstones(tombstones []Entry) *RangeTombstones {
	slices.SortFunc(tombstones, func(a, b Entry) int { return Compare(a.Key, a.Seq, b.Key, b.Seq) })
	return sortedRangeTombstones(tombstones)
}

// MergeRangeTombstones returns the tombstones of both sets in one. Cost: a step for each.
func MergeRangeTombstones(a, b *RangeTombstones) *RangeTombstones {
	left, right := a.All(), b.All()
	merged := make([]Entry, 0, len(left)+len(right))
	for len(left) > 0 && len(right) > 0 {
		if Compare(left[0].Key, left[0].Seq, right[0].Key, right[0].Seq) <= 0 {
			merged, left = append(merged, left[0]), left[1:]
		} else {
			merged, right = append(merged, right[0]), right[1:]
		}
	}
	return sortedRangeTombstones(append(append(merged, left...), right...))
}

// sortedRangeTombstones takes ownership of tombstones in their order.
func sortedRangeTombstones(tombstones []Entry) *RangeTombstones {
	r := &RangeTombstones{tombstones: tombstones, maxEnd: make([][]byte, len(tombstones))}
	var end []byte
	for i := range tombstones {
		if bytes.Compare(tombstones[i].Value, end) > 0 {
			end = tombstones[i].Value
		}
		r.maxEnd[i] = end
	}
	return r
}

// Len returns the number of tombstones.
func (r *RangeTombstones) Len() int {
	if r == nil {
		return 0
	}
	return len(r.tombstones)
}

// All returns the tombstones by start, then newest first. The result is read-only.
func (r *RangeTombstones) All() []Entry {
	if r == nil {
		return nil
	}
	return r.tombstones
}

// Cover returns the sequence number of the newest tombstone that is not newer than at
// and covers key, or 0. It hides entries with a lower number; an entry with the same
// number belongs to the same batch and stays visible.
//
// Cost: a binary search, then a step for each tombstone that starts at or before key,
// back to the first one before which no tombstone ends after key.
func (r *RangeTombstones) Cover(key []byte, at SeqNum) SeqNum {
	if r.Len() == 0 {
		return 0
	}
	n, _ := slices.BinarySearchFunc(r.tombstones, key, func(t Entry, key []byte) int {
		return cmp.Or(bytes.Compare(t.Key, key), -1) // one that starts at key covers it
	})
	var newest SeqNum
	for i := n - 1; i >= 0 && bytes.Compare(r.maxEnd[i], key) > 0; i-- {
		t := &r.tombstones[i]
		if t.Seq <= at && t.Seq > newest && bytes.Compare(key, t.Value) < 0 {
			newest = t.Seq
		}
	}
	return newest
}
