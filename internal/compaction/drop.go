package compaction

import (
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

// Superseded reports whether nobody can see version seq of a key that has the
// newer version newer: no snapshot is at seq or later but before newer.
func (s Snapshots) Superseded(seq, newer kv.SeqNum) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i] >= seq })
	return i == len(s) || s[i] >= newer
}

// TombstoneDead reports whether a tombstone that no newer version supersedes may
// go. olderRead says that the merge reads all older versions of its keys: that
// is so in a CompactBase and only there. Every snapshot must see the tombstone,
// or one of them sees an older version, which the merge keeps and which would
// come back to life for readers of newer versions.
func (s Snapshots) TombstoneDead(seq kv.SeqNum, olderRead bool) bool {
	if bugTombstoneEarly {
		olderRead = true
	}
	if bugTombstoneSnapshot {
		return olderRead
	}
	return olderRead && seq <= s.Oldest()
}

// Rule says which entries of a merge stay.
type Rule struct {
	// Snapshots is what must stay readable.
	Snapshots Snapshots
	// Now is the Unix time in milliseconds; entries that expired by then count as
	// tombstones. It must not be later than the clock of any later reader. Zero:
	// none has expired.
	Now uint64
}

// verdict is what becomes of an entry.
type verdict uint8

const (
	stays verdict = iota
	superseded
	tombstoneDead
)

// judge applies a Rule to the entries of a merge, in the order of kv.Compare.
//
// Range tombstones stay: telling when all that they cover is gone takes more
// than the versions of one key. Nor do they supersede what lies under them.
type judge struct {
	rule      Rule
	olderRead bool
	newer     kv.SeqNum // the last version of the current key; 0: none yet
}

// next judges an entry; sameKey says that it has the key of the one before it.
func (j *judge) next(e *kv.Entry, sameKey bool) verdict {
	if !sameKey {
		j.newer = 0
	}
	if e.Kind == kv.KindRangeDelete {
		return stays
	}
	newer := j.newer
	j.newer = e.Seq
	if newer != 0 && j.rule.Snapshots.Superseded(e.Seq, newer) {
		return superseded
	}
	dead := e.Kind == kv.KindDelete || e.Expiry != 0 && e.Expiry <= j.rule.Now
	if dead && j.rule.Snapshots.TombstoneDead(e.Seq, j.olderRead) {
		return tombstoneDead
	}
	return stays
}
