package scanbatch

import "github.com/kvd-db/kvd/internal/kv"

// View is a reader's view of the versions.
type View struct {
	// At is the sequence number that the reader reads at.
	At kv.SeqNum
	// Now is the reader's clock in Unix milliseconds: entries that expire at or before
	// it are not shown. Zero: nothing has expired.
	Now uint64
	// Covers are the range tombstones of every source that is read, each source with
	// its whole set. Nil sets are empty.
	Covers []*kv.RangeTombstones
}

// Sees reports whether an entry is a version of its key that the reader may see. Range
// tombstones are no versions: Covers has them.
func (v *View) Sees(seq kv.SeqNum, kind kv.Kind) bool {
	return seq <= v.At && kind != kv.KindRangeDelete
}

// Shows reports whether e, the newest version of its key that the reader sees, is
// present: not deleted, not expired, not covered.
func (v *View) Shows(e *kv.Entry) bool {
	return e.Kind != kv.KindDelete && (e.Expiry == 0 || e.Expiry > v.Now) && !v.Hides(e.Key, e.Seq)
}

// Hides reports whether a range tombstone covers this version of key.
func (v *View) Hides(key []byte, seq kv.SeqNum) bool {
	for _, c := range v.Covers {
		if c.Cover(key, v.At) > seq {
			return true
		}
	}
	return false
}
