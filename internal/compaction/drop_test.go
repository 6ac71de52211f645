package compaction

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestNewSnapshotsSorts(t *testing.T) {
	assert.Equal(t, Snapshots{2, 5, 9}, NewSnapshots([]kv.SeqNum{9, 2, 5, 2, 9}))
	assert.Equal(t, kv.SeqNum(2), NewSnapshots([]kv.SeqNum{9, 2}).Oldest())
	assert.Equal(t, kv.MaxSeqNum, NewSnapshots(nil).Oldest())
}

func TestSuperseded(t *testing.T) {
	for _, c := range []struct {
		snapshots  Snapshots
		seq, newer kv.SeqNum
		want       bool
	}{
		{nil, 5, 9, true},
		{Snapshots{4}, 5, 9, true},    // before both: it sees neither
		{Snapshots{5}, 5, 9, false},   // at the version
		{Snapshots{7}, 5, 9, false},   // between
		{Snapshots{8}, 5, 9, false},   // directly before the newer one
		{Snapshots{9}, 5, 9, true},    // it sees the newer one
		{Snapshots{4, 9}, 5, 9, true}, //
		{Snapshots{4, 6, 9}, 5, 9, false},
		{Snapshots{1, 2, 3, 10, 11}, 5, 9, true},
	} {
		assert.Equal(t, c.want, c.snapshots.Superseded(c.seq, c.newer), "%+v", c)
	}
}

func TestTombstoneDead(t *testing.T) {
	for _, c := range []struct {
		snapshots Snapshots
		seq       kv.SeqNum
		olderRead bool
		want      bool
	}{
		{nil, 5, true, true},
		{nil, 5, false, false}, // older versions are in tables that the merge does not read
		{Snapshots{5}, 5, true, true},
		{Snapshots{6, 8}, 5, true, true},
		{Snapshots{4}, 5, true, false}, // the snapshot keeps what the tombstone hides
		{Snapshots{4, 8}, 5, true, false},
		{Snapshots{8}, 5, false, false},
	} {
		assert.Equal(t, c.want, c.snapshots.TombstoneDead(c.seq, c.olderRead), "%+v", c)
	}
}

// newestAt is what a reader at a version sees of a key: the number of the newest version
// that is not newer; 0 if that is a tombstone or there is none. Range
// tombstones in versions cover the key.
func newestAt(at kv.SeqNum, versions ...[]kv.Entry) kv.SeqNum {
	var newest kv.Entry
	for _, run := range versions {
		for _, e := range run {
			if e.Seq <= at && e.Seq > newest.Seq {
				newest = e
			}
		}
	}
	if newest.Kind != kv.KindPut {
		return 0
	}
	return newest.Seq
}

// All histories of one key of up to four versions, each put, deleted, or deleted
// with its range, all sets of snapshots, and all ways to divide the history into
// runs that the merge reads and older ones that it does not: every snapshot and
// every newer reader sees the same after the merge as before.
func TestNobodySeesADifferenceExhaustively(t *testing.T) {
	testsize.OneGoroutine(t)
	const most = 4
	cases := 0
	kinds := []kv.Kind{kv.KindPut, kv.KindDelete, kv.KindRangeDelete}
	for versions := 1; versions <= most; versions++ {
		for _, start := range []string{"a", "k"} { // of the range tombstones: before the key, or at it
			for choice := range 81 {
				history := make([]kv.Entry, versions) // newest first, at 2, 4, 6 ...
				for i := range history {
					history[i] = kv.Entry{Key: []byte("k"), Seq: kv.SeqNum(2 * (versions - i)), Kind: kinds[choice%3]}
					if history[i].Kind == kv.KindRangeDelete {
						history[i].Key, history[i].Value = []byte(start), []byte("z")
					}
					choice /= 3
				}
				if choice > 0 {
					break // all kinds of these versions are tested
				}
				for set := range 1 << (2*versions + 1) { // snapshots at 1, 2 ... 2*versions+1
					var snapshots Snapshots
					for at := range 2*versions + 1 {
						if set>>at&1 == 1 {
							snapshots = append(snapshots, kv.SeqNum(at+1))
						}
					}
					for unread := 0; unread < versions; unread++ { // versions that the merge does not read
						cases++
						checkHistory(t, history[:versions-unread], history[versions-unread:], snapshots)
					}
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}

// checkHistory merges the versions that are read, newest first.
func checkHistory(t *testing.T, read, unread []kv.Entry, snapshots Snapshots) {
	j := judge{rule: Rule{Snapshots: snapshots}, olderRead: len(unread) == 0}
	var kept []kv.Entry
	ordered := slices.Clone(read)
	slices.SortStableFunc(ordered, compareEntries)
	for i := range ordered {
		e := &ordered[i]
		if i > 0 && !bytes.Equal(e.Key, ordered[i-1].Key) {
			j.nextKey()
		}
		judged := j.point
		if e.Kind == kv.KindRangeDelete {
			judged = j.rangeDelete
		}
		if judged(e) == stays {
			kept = append(kept, *e)
		}
	}
	newest := read[0].Seq
	readers := append(Snapshots{newest, newest + 1, kv.MaxSeqNum}, snapshots...)
	for _, at := range readers {
		if want, got := newestAt(at, read, unread), newestAt(at, kept, unread); want != got {
			require.FailNow(t, "a reader sees a difference", "at %d: %d, want %d\nread %s\nunread %s\nkept %s\nsnapshots %v",
				at, got, want, describe(read), describe(unread), describe(kept), snapshots)
		}
	}
	ranges := 0
	for _, e := range kept {
		if e.Kind == kv.KindRangeDelete {
			ranges++
		}
	}
	if most := len(snapshots) + 1; ranges > most || len(kept)-ranges > most {
		require.FailNow(t, "more versions than readers", "kept %s, snapshots %v", describe(kept), snapshots)
	}
	if len(snapshots) == 0 && len(unread) == 0 {
		live := 0
		if read[0].Kind == kv.KindPut {
			live = 1
		}
		require.Len(t, kept, live, "a dead entry that hides nothing must be dropped: read %s, kept %s", describe(read), describe(kept))
	}
}

func describe(entries []kv.Entry) string {
	s := ""
	for _, e := range entries {
		s += fmt.Sprintf("%s@%d ", e.Kind, e.Seq)
	}
	return s
}

func TestExpiredEntriesAreTombstones(t *testing.T) {
	put := func(key string, seq kv.SeqNum, expiry uint64) *kv.Entry {
		return &kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindPut, Expiry: expiry}
	}
	base := judge{rule: Rule{Now: 1000}, olderRead: true}
	assert.Equal(t, tombstoneDead, base.point(put("a", 9, 1000)))
	assert.Equal(t, superseded, base.point(put("a", 8, 0)), "an expired version still hides older ones")
	base.nextKey()
	assert.Equal(t, stays, base.point(put("b", 9, 1001)))

	delta := judge{rule: Rule{Now: 1000}}
	assert.Equal(t, stays, delta.point(put("a", 9, 1000)), "older versions may be in the base")
	assert.Equal(t, superseded, delta.point(put("a", 8, 0)))
	never := judge{olderRead: true}
	assert.Equal(t, stays, never.point(put("a", 9, 1)))
	snapshot := judge{rule: Rule{Now: 1000, Snapshots: Snapshots{8}}, olderRead: true}
	assert.Equal(t, stays, snapshot.point(put("a", 9, 1)), "it hides what the snapshot keeps")
	assert.Equal(t, stays, snapshot.point(put("a", 8, 0)))
}

func TestRangeTombstonesHideTheOlder(t *testing.T) {
	put := func(key string, seq kv.SeqNum) *kv.Entry {
		return &kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindPut}
	}
	j := judge{}
	assert.Equal(t, stays, j.rangeDelete(tombstone("b", "d", 7)))
	assert.Equal(t, stays, j.point(put("b", 8)))
	j.nextKey()
	assert.Equal(t, stays, j.point(put("ba", 7)), "one of the same batch is not hidden")
	j.nextKey()
	assert.Equal(t, superseded, j.point(put("bb", 6)))
	j.nextKey()
	assert.Equal(t, stays, j.point(put("d", 6)), "the end is exclusive")
}

func TestARangeTombstoneIsSupersededWhereANewerOneCovers(t *testing.T) {
	j := judge{rule: Rule{Snapshots: Snapshots{4}}}
	require.Equal(t, stays, j.rangeDelete(tombstone("b", "m", 9)))
	assert.Equal(t, superseded, j.rangeDelete(tombstone("c", "m", 8)))
	assert.Equal(t, superseded, j.rangeDelete(tombstone("c", "d", 9)), "of the same batch")
	assert.Equal(t, superseded, j.rangeDelete(tombstone("c", "d", 5)))
	assert.Equal(t, stays, j.rangeDelete(tombstone("c", "d", 4)), "the snapshot sees it and not the newer one")
	assert.Equal(t, superseded, j.rangeDelete(tombstone("c", "d", 3)))
	longer := tombstone("e", "z", 6)
	assert.Equal(t, postponed, j.rangeDelete(longer))
	assert.Equal(t, tombstone("m", "z", 6), longer)
	assert.Equal(t, stays, j.rangeDelete(longer))
	assert.Equal(t, stays, j.rangeDelete(tombstone("n", "q", 7)), "a newer one")

	base := judge{rule: Rule{Snapshots: Snapshots{4}}, olderRead: true}
	assert.Equal(t, tombstoneDead, base.rangeDelete(tombstone("b", "m", 4)))
	assert.Equal(t, stays, base.rangeDelete(tombstone("b", "m", 5)), "what it hides stays for the snapshot")
	base.nextKey()
	assert.Equal(t, superseded, base.point(&kv.Entry{Key: []byte("c"), Seq: 3, Kind: kv.KindPut}), "the dead one hides")
}

func tombstone(start, end string, seq kv.SeqNum) *kv.Entry {
	return &kv.Entry{Key: []byte(start), Value: []byte(end), Seq: seq, Kind: kv.KindRangeDelete}
}

func compareEntries(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) }
