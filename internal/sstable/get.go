package sstable

import "github.com/kvd-db/kvd/internal/kv"

// Query is a point read that walks through a partition's files, newest first,
// until one of them answers it. The asker owns it and fills in Key, Hash and At.
//
// After the walk: Err, if not nil, is why this read alone failed; a put has Done
// set and Kind kv.KindPut; anything else is an absent key, deleted if Done.
type Query struct {
	Key  []byte
	Hash uint64    // keyhash.Sum(Key): with another one, a present key is not found
	At   kv.SeqNum // the newest version that may be seen
	// Want says of which value Value is to hold the bytes.
	Want kv.Want
	// Budget, if not nil, bounds the bytes of this value and of others together:
	// a query that finds it spent fails with kv.ErrBudgetSpent.
	Budget *kv.ReadBudget

	// Done: this or a newer file has answered. Files pass over a query that is
	// done, so one that failed is never answered from older data.
	Done   bool
	Kind   kv.Kind // of the answer: put, delete or range delete
	Seq    kv.SeqNum
	Expiry uint64
	// Value is a copy, written over what the slice held: give a slice with room
	// to spare an allocation. It may be nil for an empty value; ask Kind.
	Value []byte
	// Apart: the value of the answer lies where Pointer says, and Value is left as it
	// was, for whoever reads it.
	Apart   bool
	Pointer kv.ValuePointer
	// Omitted: the answer has a value that was not wanted. Value is left as it was.
	Omitted bool
	Err     error
}

func (q *Query) fail(err error) { q.Err, q.Done = err, true }

// answer takes what the data block and the range tombstones have to say:
// covered is the number of the newest tombstone that covers the key, or 0. It
// reports !ok if no writer makes such an entry.
func (q *Query) answer(b *block, h *header, found bool, covered kv.SeqNum) (ok bool) {
	switch {
	case found && h.seq >= covered:
		value := b.value(h)
		size := len(value)
		if h.apart {
			if q.Pointer, ok = kv.ParseValuePointer(value); !ok {
				return false
			}
			size = int(q.Pointer.Length)
		}
		q.Done, q.Kind, q.Seq, q.Expiry = true, h.kind, h.seq, h.expiry
		switch {
		case h.kind != kv.KindPut:
		case !q.Want.Takes(size):
			q.Omitted = true
		case !q.Budget.Take(size):
			q.fail(kv.ErrBudgetSpent)
		case h.apart:
			q.Apart = true
		default:
			q.Value = append(q.Value[:0], value...)
		}
	case covered != 0:
		q.Done, q.Kind, q.Seq = true, kv.KindRangeDelete, covered
	}
	return true
}

// Get answers q from this file, if it has a version of the key that q may see;
// the newest such version wins, tombstones included. It does nothing if q is
// done.
//
// Errors are in q: a *kv.CorruptionError that names file and offset, or what
// the read returned.
// Cost: a cache miss of the processor for the filter and, if that lets the key
// pass, a search in the index, and one read unless the block is cached.
func (r *Reader) Get(q *Query) {
	if q.Done {
		return
	}
	i, covered := r.locate(q)
	if i < 0 {
		q.answer(nil, nil, false, covered)
		return
	}
	b, err := r.readBlock(i)
	if err != nil {
		q.fail(err)
		return
	}
	r.search(q, i, &b, covered)
}

// locate returns the data block that has the answer, -1 if none has, and the
// number of the newest range tombstone that covers the key, or 0.
func (r *Reader) locate(q *Query) (i int, covered kv.SeqNum) {
	if r.ranges != nil {
		covered = r.ranges.Cover(q.Key, q.At)
	}
	if !r.filter.mayContain(q.Hash) {
		return -1, covered
	}
	if i = r.index.find(q.Key, q.At); i == r.index.blocks() {
		return -1, covered
	}
	return i, covered
}

// search answers q from data block i.
func (r *Reader) search(q *Query, i int, b *block, covered kv.SeqNum) {
	var h header
	found, ok := b.find(q.Key, q.Hash, q.At, &h)
	if !ok || !q.answer(b, &h, found, covered) {
		q.fail(r.malformed(i))
	}
}
