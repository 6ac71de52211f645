package kv

import (
	"bytes"
	"fmt"
)

// SeqNum is a commit sequence number: the version of a write. Zero means "no
// version"; the first commit of a store has number 1. On disk it takes 56
// bits, which is enough for a million commits a second over two thousand years.
type SeqNum uint64

// MaxSeqNum is the largest number that fits the 56 bits of a stored entry.
// Reading at MaxSeqNum reads the newest version of everything.
const MaxSeqNum SeqNum = 1<<56 - 1

// Kind says what an entry does to its key. Zero is never valid, so a run of
// zero bytes is never mistaken for an entry. The numbers are part of the disk
// formats and are never reused.
type Kind uint8

const (
	// KindPut sets the key to the value. Any byte string is a legal value.
	KindPut Kind = 1
	// KindDelete is a tombstone: the key is absent from here on.
	KindDelete Kind = 2
	// KindRangeDelete is a range tombstone: every key in [Key, Value) is absent
	// from here on. The value of the entry is the exclusive end key.
	KindRangeDelete Kind = 3
	// KindMax is one more than the largest valid kind.
	KindMax Kind = 4
)

// Valid reports whether k is a kind that this version knows.
func (k Kind) Valid() bool { return k > 0 && k < KindMax }

func (k Kind) String() string {
	switch k {
	case KindPut:
		return "put"
	case KindDelete:
		return "delete"
	case KindRangeDelete:
		return "range-delete"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Entry is one version of one key.
type Entry struct {
	Key   []byte
	Value []byte // nil for KindDelete, the exclusive end key for KindRangeDelete
	Seq   SeqNum
	Kind  Kind
	// Apart: Value is an encoded ValuePointer, and the value itself lies in a value
	// file (a separated value). Only puts in sstables are separated.
	Apart bool
	// Expiry is the Unix time in milliseconds from which the entry counts as
	// deleted; zero means never.
	Expiry uint64
}

// Size returns the bytes of user data in the entry: the key plus the value or pointer.
func (e *Entry) Size() int { return len(e.Key) + len(e.Value) }

// Compare orders entries: key ascending, then sequence number descending.
func Compare(aKey []byte, aSeq SeqNum, bKey []byte, bSeq SeqNum) int {
	if c := bytes.Compare(aKey, bKey); c != 0 {
		return c
	}
	switch {
	case aSeq > bSeq:
		return -1
	case aSeq < bSeq:
		return 1
	}
	return 0
}

// Trailer packs a sequence number and a kind into the eight bytes that every
// stored entry carries: the number in the upper 56 bits, the kind below.
func Trailer(seq SeqNum, kind Kind) uint64 { return uint64(seq)<<8 | uint64(kind) }

// SplitTrailer undoes Trailer. The kind is not validated.
func SplitTrailer(t uint64) (SeqNum, Kind) { return SeqNum(t >> 8), Kind(t) }

// Item is the answer to a read: a key, its value and the version that wrote it. The
// receiver owns the slices.
type Item struct {
	Key     []byte
	Value   []byte
	Version SeqNum
	Expiry  uint64 // as in Entry
}

// Range is the set of keys k with Start <= k < End. A nil or empty End means
// that the range has no upper bound.
type Range struct {
	Start, End []byte
}

// Contains reports whether key lies in the range.
func (r Range) Contains(key []byte) bool {
	return bytes.Compare(key, r.Start) >= 0 && (len(r.End) == 0 || bytes.Compare(key, r.End) < 0)
}

// PrefixRange returns the range of all keys that start with prefix.
//
// The result does not alias prefix.
func PrefixRange(prefix []byte) Range {
	return Range{Start: bytes.Clone(prefix), End: prefixEnd(prefix)}
}

// prefixEnd returns the smallest key greater than every key with the prefix,
// or nil if there is none (the prefix is empty or all 0xff).
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
