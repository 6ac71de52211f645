package compaction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

func TestBytesWithinARange(t *testing.T) {
	run := manifest.Run{
		{Num: 1, Size: 1000, Smallest: []byte("user000100"), Largest: []byte("user000199")},
		{Num: 2, Size: 4000, Smallest: []byte("user000200"), Largest: []byte("user000299")},
		{Num: 3, Size: 500, Smallest: []byte("x"), Largest: []byte("x")},
		{Num: 4, Size: 800, Smallest: []byte("y"), Largest: []byte("y\x00")},
	}
	for name, c := range map[string]struct {
		start, end string
		want       uint64
		give       float64
	}{
		"nothing before":       {"a", "user000100", 0, 0},
		"nothing behind":       {"z", "zz", 0, 0},
		"nothing between":      {"user0003", "user0004", 0, 0},
		"all":                  {"a", "z", 6300, 0},
		"a whole table":        {"user0002", "user0003", 4000, 0},
		"a table of one key":   {"x", "x\x00", 500, 0},
		"up to that key":       {"user0003", "x", 0, 0},
		"half a table":         {"user000200", "user000250", 2000, 0.15},
		"a tenth of a table":   {"user000230", "user000240", 400, 0.15},
		"the ends of two":      {"user000150", "user000210", 500 + 400, 0.15},
		"keys hard to tell":    {"y", "y\x00", 0, 0},
		"keys hard to tell, 2": {"y", "z", 800, 0},
	} {
		got := bytesWithin(run, []byte(c.start), []byte(c.end))
		require.InDelta(t, c.want, got, c.give*float64(c.want), name)
	}
}

// What several range tombstones cover counts once, pieces that were cut are as
// good as one, and those that a snapshot precedes count for nothing.
func TestCoveredBytesCountOnce(t *testing.T) {
	v := build(shape{10, 100, 0}, shape{2, 1, 0.1}) // tables of the base begin at 000000, 100000 ...
	ranges := map[kv.FileNum][]kv.Entry{
		20: {*tombstone("000000", "300000", 150), *tombstone("100000", "450000", 140), *tombstone("450000", "500000", 140)},
		21: {*tombstone("500000", "600000", 140), *tombstone("900000", "999999", 160)},
	}
	k := newPicker(v, Policy{})
	k.ranges = func(num kv.FileNum) *kv.RangeTombstones { return kv.NewRangeTombstones(ranges[num]) }
	for oldest, want := range map[kv.SeqNum]uint64{kv.MaxSeqNum: 700, 160: 700, 159: 600, 149: 500, 139: 0} {
		k.oldestSnapshot = oldest
		require.InDelta(t, want<<20, k.covered(v.Deltas[0]), 1<<20, "oldest snapshot %d", oldest)
	}
	k.ranges = nil
	require.Zero(t, k.covered(v.Deltas[0]))
}
