package kv

// View is a reader's view of the versions.
type View struct {
	// At is the sequence number that the reader reads at.
	At SeqNum
	// Now is the reader's clock in Unix milliseconds: entries that expire at or before
	// it are not shown. Zero: nothing has expired.
	Now uint64
	// Covers are the range tombstones of every source that is read, each source with
	// its whole set. Nil sets are empty.
	Covers []*RangeTombstones
}

// Sees reports whether an entry is a version of its key that the reader may see. Range
// tombstones are no versions: Covers has them.
func (v *View) Sees(seq SeqNum, kind Kind) bool { return seq <= v.At && kind != KindRangeDelete }

// Shows reports whether e, the newest version of its key that the reader sees, is
// present: not deleted, not expired, not covered.
func (v *View) Shows(e *Entry) bool {
	return e.Kind != KindDelete && (e.Expiry == 0 || e.Expiry > v.Now) && !v.Hides(e.Key, e.Seq)
}

// Hides reports whether a range tombstone covers this version of key.
func (v *View) Hides(key []byte, seq SeqNum) bool {
	for _, c := range v.Covers {
		if c.Cover(key, v.At) > seq {
			return true
		}
	}
	return false
}
