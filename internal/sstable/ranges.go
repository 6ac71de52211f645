package sstable

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// ranges are the range tombstones of a file. They stand among the entries like
// any other, and once more in a block of their own that stays in memory: a
// point read must see one that starts long before its key.
type ranges struct {
	tombstones []kv.Entry // by start, then newest first
	maxEnd     [][]byte   // maxEnd[i] is the largest end among tombstones[:i+1]
}

// newRanges takes over the tombstones, in the order of the file.
func newRanges(tombstones []kv.Entry) ranges {
	r := ranges{tombstones: tombstones, maxEnd: make([][]byte, len(tombstones))}
	var end []byte
	for i := range tombstones {
		if bytes.Compare(tombstones[i].Value, end) > 0 {
			end = tombstones[i].Value
		}
		r.maxEnd[i] = end
	}
	return r
}

// cover returns the number of the newest range tombstone not newer than at that
// covers key, or 0.
// Cost: a binary search, then a step per tombstone that starts at or before key
// and is not wholly behind one that covers it.
func (r *ranges) cover(key []byte, at kv.SeqNum) kv.SeqNum {
	n, _ := slices.BinarySearchFunc(r.tombstones, key, func(t kv.Entry, key []byte) int {
		return cmp.Or(bytes.Compare(t.Key, key), -1) // one that starts at key covers it
	})
	var newest kv.SeqNum
	for i := n - 1; i >= 0 && bytes.Compare(r.maxEnd[i], key) > 0; i-- {
		t := &r.tombstones[i]
		if t.Seq <= at && t.Seq > newest && bytes.Compare(key, t.Value) < 0 {
			newest = t.Seq
		}
	}
	return newest
}

// appendRanges appends the contents of the range tombstone block.
func appendRanges(dst []byte, tombstones []kv.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tombstones)))
	for i := range tombstones {
		dst = appendBytes(dst, tombstones[i].Key)
		dst = appendBytes(dst, tombstones[i].Value)
		dst = binary.AppendUvarint(dst, uint64(tombstones[i].Seq))
	}
	return dst
}

// parseRanges reads the contents of a range tombstone block, which the result
// borrows.
func parseRanges(contents []byte) (r ranges, ok bool) {
	const minBytes = 5 // two strings of at least one byte and a number
	d := kv.Decoder{Rest: contents}
	n := d.Uvarint(uint64(len(contents)) / minBytes)
	if d.Err != nil || n == 0 {
		return r, false
	}
	tombstones := make([]kv.Entry, 0, n)
	for i := range n {
		e := kv.Entry{Kind: kv.KindRangeDelete}
		e.Key = d.Bytes(kv.MaxKeyBytes)
		e.Value = d.Bytes(kv.MaxKeyBytes)
		e.Seq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
		if d.Err != nil || e.Seq == 0 || len(e.Key) == 0 || bytes.Compare(e.Key, e.Value) >= 0 {
			return r, false
		}
		if i > 0 && kv.Compare(tombstones[i-1].Key, tombstones[i-1].Seq, e.Key, e.Seq) > 0 {
			return r, false
		}
		tombstones = append(tombstones, e)
	}
	return newRanges(tombstones), len(d.Rest) == 0
}
