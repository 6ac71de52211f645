package kv

// View is how a reader looks at versions.
type View struct {
	// At is the number that the reader reads at.
	At SeqNum
	// Now is the reader's clock, Unix time in milliseconds: what expires by then
	// is not shown. Zero: nothing has expired.
	Now uint64
	// Covers are the range tombstones of everything that is read, of each source
	// the whole set. Nil ones are empty.
	Covers []*RangeTombstones
}

// Sees reports whether an entry is a version of its key that the reader may see.
// Range tombstones are not: Covers has them.
func (v *View) Sees(seq SeqNum, kind Kind) bool { return seq <= v.At && kind != KindRangeDelete }

// Shows reports whether e, the newest version of its key that the reader sees, is
// there for it: not deleted, not expired, not covered.
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
