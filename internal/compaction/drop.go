package compaction

import (
	"bytes"
	"slices"
	"sort"

	"github.com/kvd-db/kvd/internal/kv"
)

// Snapshots are the sequence numbers that somebody may still read at, ascending.
//
// Besides the snapshots that were handed out, the list must have the number at
// which a new snapshot would be taken now. An entry can be in a table before it
// is visible, and a snapshot taken after the merge began must not miss what that
// entry hides. Reading at the newest version needs no number.
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

// Superseded reports whether nobody can see version seq of a key that is hidden
// from version newer on, by another version or by a range tombstone: no snapshot
// is at seq or later but before newer.
func (s Snapshots) Superseded(seq, newer kv.SeqNum) bool { return newer <= s.from(seq) }

// from returns the number of the first snapshot that sees version seq,
// kv.MaxSeqNum if there is none: then only readers of the newest versions may.
func (s Snapshots) from(seq kv.SeqNum) kv.SeqNum {
	if i := sort.Search(len(s), func(i int) bool { return s[i] >= seq }); i < len(s) {
		return s[i]
	}
	return kv.MaxSeqNum
}

// TombstoneDead reports whether a tombstone that nothing newer supersedes may go.
// olderRead says that the merge reads all older versions of its keys: that is so
// in a CompactBase and only there. Every snapshot must see the tombstone, or one
// of them sees an older version, which the merge keeps and which would come back
// to life for readers of newer versions.
func (s Snapshots) TombstoneDead(seq kv.SeqNum, olderRead bool) bool {
	return olderRead && seq <= s.Oldest()
}

// Rule says which entries of a merge stay.
type Rule struct {
	// Snapshots is what must stay readable.
	Snapshots Snapshots
	// Now is the Unix time in milliseconds; entries that expired by then count as
	// tombstones. It must not be later than the clock of any reader, now or later.
	// Zero: none has expired.
	Now uint64
}

// verdict is what becomes of an entry.
type verdict uint8

const (
	stays verdict = iota
	superseded
	tombstoneDead
	postponed // a range tombstone that begins later now
)

// judge applies a Rule to the entries of a merge, in the order of kv.Compare.
type judge struct {
	rule      Rule
	olderRead bool
	newer     kv.SeqNum // the last version of the current key; 0: none yet
	cover     cover     // the range tombstones that stayed, and the dead ones
}

// nextKey says that the next entry has another key than the one before it.
func (j *judge) nextKey() { j.newer = 0 }

// point judges a put or delete.
//
// It goes if the first reader that could see it sees something newer in its place.
// That may be a version or tombstone that was dropped itself: what superseded that
// one takes its part, for no snapshot lies between.
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

// rangeDelete judges a range tombstone. If only its first part is superseded, it
// makes it begin behind that and says postponed: it is to be judged again there.
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

// dead reports whether a range tombstone is dropped wherever it stands.
func (j *judge) dead(t *kv.Entry) bool {
	return j.rule.Snapshots.TombstoneDead(t.Seq, j.olderRead)
}
