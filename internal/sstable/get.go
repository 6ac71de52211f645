package sstable

import "github.com/kvd-db/kvd/internal/kv"

// Query is a point read that is passed through a partition's files, newest first,
// until one of them answers it. The caller owns it and sets Key, Hash and At.
//
// Afterwards: Err, if not nil, is why this read alone failed; for a put Done is set and
// Kind is kv.KindPut; otherwise the key is absent, and deleted if Done is set.
type Query struct {
	Key  []byte
	Hash uint64    // keyhash.Sum(Key); with another hash a present key is not found
	At   kv.SeqNum // the newest version that may be seen
	// Want says which values Value should receive.
	Want kv.Want
	// Budget, if not nil, bounds the bytes of this value and of others together: a query
	// that exceeds it fails with kv.ErrBudgetSpent.
	Budget *kv.ReadBudget

	// Done: this or a newer file has answered. Files skip a query that is done, so one
	// that failed is never answered from older data.
	Done   bool
	Kind   kv.Kind // of the answer: put, delete or range delete
	Seq    kv.SeqNum
	Expiry uint64
	// Value is a copy, written over the previous contents of the slice: pass a slice with
	// capacity to avoid an allocation. It may be nil for an empty value; check Kind.
	Value []byte
	// Apart: the value is in a value file at Pointer, from which the caller reads it.
	// Value is unchanged.
	Apart   bool
	Pointer kv.ValuePointer
	// Omitted: the answer has a value that Want excludes. Value is unchanged.
	Omitted bool
	Err     error
}

func (q *Query) fail(err error) { q.Err, q.Done = err, true }

// answer completes q from the entry h of b, if found, and from covered, the sequence
// number of the newest range tombstone that covers the key, or 0. It reports !ok for
// an entry that no writer makes.
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

// Get answers q from this file if it has a version of the key that q may see;
// the newest such version wins, tombstones included. It does nothing if q is
// done.
//
// Errors are in q: a *kv.CorruptionError that names file and offset, or what
// the read returned.
// Cost: one processor cache miss for the filter and, if the filter admits the key, a
// search in the index and one read unless the block is cached.
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

// locate returns the data block that may have the answer, -1 if there is none, and the
// sequence number of the newest range tombstone that covers the key, or 0. It fails the query
// if the file could not be opened.
func (r *Reader) locate(q *Query) (i int, covered kv.SeqNum) {
	if r.damage != nil {
		q.fail(r.damage)
		return -1, 0
	}
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
