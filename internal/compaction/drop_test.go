package compaction

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
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
		{Snapshots{8}, 5, 9, false},   // just before the newer one
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
		{nil, 5, false, false}, // older versions are elsewhere
		{Snapshots{5}, 5, true, true},
		{Snapshots{6, 8}, 5, true, true},
		{Snapshots{4}, 5, true, false}, // it keeps what the tombstone hides
		{Snapshots{4, 8}, 5, true, false},
		{Snapshots{8}, 5, false, false},
	} {
		assert.Equal(t, c.want, c.snapshots.TombstoneDead(c.seq, c.olderRead), "%+v", c)
	}
}

// newestAt is what a reader at a version sees of a key: the newest of its
// versions that is not newer; 0 if it sees a tombstone or nothing.
func newestAt(at kv.SeqNum, versions ...[]kv.Entry) kv.SeqNum {
	var newest kv.Entry
	for _, run := range versions {
		for _, e := range run {
			if e.Seq <= at && e.Seq > newest.Seq {
				newest = e
			}
		}
	}
	if newest.Kind == kv.KindDelete {
		return 0
	}
	return newest.Seq
}

// All histories of one key of up to five versions, each put or deleted, all sets
// of snapshots, and all ways to part the history into runs that the merge reads
// and older ones that it does not: every snapshot and every newer reader sees
// after the merge what it saw before.
func TestNobodySeesADifferenceExhaustively(t *testing.T) {
	const most = 5
	cases := 0
	for versions := 1; versions <= most; versions++ {
		for kinds := range 1 << versions {
			history := make([]kv.Entry, versions) // newest first, at 2, 4, 6 ...
			for i := range history {
				history[i] = kv.Entry{Key: []byte("k"), Seq: kv.SeqNum(2 * (versions - i)), Kind: kv.KindPut}
				if kinds>>i&1 == 1 {
					history[i].Kind = kv.KindDelete
				}
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
	t.Logf("%d cases", cases)
}

func checkHistory(t *testing.T, read, unread []kv.Entry, snapshots Snapshots) {
	j := judge{rule: Rule{Snapshots: snapshots}, olderRead: len(unread) == 0}
	var kept []kv.Entry
	for i := range read {
		if j.next(&read[i], i > 0) == stays {
			kept = append(kept, read[i])
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
	if most := len(snapshots) + 1; len(kept) > most {
		require.FailNow(t, "more versions than readers", "kept %s, snapshots %v", describe(kept), snapshots)
	}
	if len(snapshots) == 0 && len(unread) == 0 && read[0].Kind == kv.KindDelete {
		require.Empty(t, kept, "a tombstone with nobody under it must go")
	}
}

func describe(entries []kv.Entry) string {
	s := ""
	for _, e := range entries {
		s += fmt.Sprintf("%s@%d ", e.Kind, e.Seq)
	}
	return s
}

func TestJudgeKnowsExpiryAndLeavesRangeTombstonesAlone(t *testing.T) {
	put := func(key string, seq kv.SeqNum, expiry uint64) *kv.Entry {
		return &kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindPut, Expiry: expiry}
	}
	rangeDelete := &kv.Entry{Key: []byte("k"), Value: []byte("m"), Seq: 7, Kind: kv.KindRangeDelete}

	base := judge{rule: Rule{Now: 1000}, olderRead: true}
	assert.Equal(t, tombstoneDead, base.next(put("a", 9, 1000), false))
	assert.Equal(t, superseded, base.next(put("a", 8, 0), true), "an expired version still hides older ones")
	assert.Equal(t, stays, base.next(put("b", 9, 1001), false))
	assert.Equal(t, stays, base.next(rangeDelete, false))
	assert.Equal(t, stays, base.next(put("k", 7, 0), true), "a range tombstone supersedes nothing")
	assert.Equal(t, stays, base.next(rangeDelete, true))
	assert.Equal(t, superseded, base.next(put("k", 6, 0), true), "but a version beside it does")

	delta := judge{rule: Rule{Now: 1000}}
	assert.Equal(t, stays, delta.next(put("a", 9, 1000), false), "older versions may be in the base")
	never := judge{olderRead: true}
	assert.Equal(t, stays, never.next(put("a", 9, 1), false))
	snapshot := judge{rule: Rule{Now: 1000, Snapshots: Snapshots{8}}, olderRead: true}
	assert.Equal(t, stays, snapshot.next(put("a", 9, 1), false))
}
