package compaction

import (
	"bytes"
	"slices"
	"sort"

	"github.com/kvd-db/kvd/internal/kv"
)

// Snapshots holds the sequence numbers that a snapshot may still read at, ascending.
//
// Besides the snapshots in use, the list must have the number at which a new snapshot
// would be taken now. An entry can be in a table before it is visible, and a snapshot
// taken after the merge began must still see what that entry hides. Readers of the
// newest versions need no number.
type Snapshots []kv.SeqNum

// NewSnapshots sorts numbers, in place, and drops duplicates.
func NewSnapshots(nums []kv.SeqNum) Snapshots {
	slices.Sort(nums)
	return slices.Compact(nums)
}

// Oldest returns the smallest number, kv.MaxSeqNum if there is none.
func (s Snapshots) Oldest() kv.SeqNum {
	if len(s) == 0 {
		return kv.MaxSeqNum
	}
	return s[0]
}

// Superseded reports whether no reader can see version seq of a key that is hidden
// from version newer on, by another version or by a range tombstone: no snapshot
// is at seq or later but before newer.
func (s Snapshots) Superseded(seq, newer kv.SeqNum) bool { return newer <= s.from(seq) }

// from returns the number of the first snapshot that sees version seq,
// kv.MaxSeqNum if there is none: then only readers of the newest versions may see it.
func (s Snapshots) from(seq kv.SeqNum) kv.SeqNum {
	if i := sort.Search(len(s), func(i int) bool { return s[i] >= seq }); i < len(s) {
		return s[i]
	}
	return kv.MaxSeqNum
}

// TombstoneDead reports whether a tombstone that nothing newer supersedes may be dropped.
// olderRead says that the merge reads all older versions of its keys, which is so
// only in a CompactBase. Every snapshot must see the tombstone. Otherwise a snapshot sees
// an older version, which the merge keeps, and without the tombstone readers of newer
// versions would see it too.
func (s Snapshots) TombstoneDead(seq kv.SeqNum, olderRead bool) bool {
	return olderRead && seq <= s.Oldest()
}

// Rule says which entries of a merge stay.
type Rule struct {
	// Snapshots must still read the same after the merge.
	Snapshots Snapshots
	// Now is the Unix time in milliseconds; entries that expired by then count as
	// tombstones. It must not be later than the clock of any reader, now or in the future.
	// Zero: none has expired.
	Now uint64
}

// verdict says what happens to an entry.
type verdict uint8

const (
	stays verdict = iota
	superseded
	tombstoneDead
	postponed // a range tombstone that now begins later
)

// judge applies a Rule to the entries of a merge, in the order of kv.Compare.
type judge struct {
	rule      Rule
	olderRead bool
	newer     kv.SeqNum // the previous version of the current key; 0: none yet
	cover     cover     // the range tombstones kept so far, and the dead ones
}

// nextKey is called if the next entry has another key than the one before it.
func (j *judge) nextKey() { j.newer = 0 }

// point evaluates a put or delete.
//
// The entry is superseded if the first reader that could see it sees something newer in
// its place. That may be a version or tombstone that was dropped itself: the entry that
// superseded it then hides this one too, because no snapshot lies between.
func (j *judge) point(e *kv.Entry) verdict {
	newer := j.newer
	j.newer = e.Seq
	reader := j.rule.Snapshots.from(e.Seq)
	if newer != 0 && newer <= reader || j.cover.newest(e.Key, reader) > e.Seq {
		return superseded
	}
	dead := e.Kind == kv.KindDelete || e.Expiry != 0 && e.Expiry <= j.rule.Now
	if dead && j.rule.Snapshots.TombstoneDead(e.Seq, j.olderRead) {
		return tombstoneDead
	}
	return stays
}

// rangeDelete evaluates a range tombstone. If only its first part is superseded, it
// moves its start to the end of that part and returns postponed: the caller evaluates it
// again there.
//
// The judge keeps the slices of t.
func (j *judge) rangeDelete(t *kv.Entry) verdict {
	if j.dead(t) {
		j.cover.add(*t)
		return tombstoneDead
	}
	if end := j.cover.end(t, j.rule.Snapshots.from(t.Seq)); end != nil {
		if bytes.Compare(end, t.Value) >= 0 {
			return superseded
		}
		t.Key = end
		return postponed
	}
	j.cover.add(*t)
	return stays
}

// dead reports whether a range tombstone may be dropped at every key that it covers.
func (j *judge) dead(t *kv.Entry) bool {
	return j.rule.Snapshots.TombstoneDead(t.Seq, j.olderRead)
}
