package compaction

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
		"nothing after":        {"z", "zz", 0, 0},
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

// Keys that several range tombstones cover count once, cut pieces count like a whole
// tombstone, and tombstones that a snapshot precedes do not count.
func TestCoveredBytesCountOnce(t *testing.T) {
	v := build(shape{10, 100, 0}, shape{2, 1, 0.1}) // tables of the base begin at 000000, 100000 ...
	ranges := map[kv.FileNum][]kv.Entry{
		20: {*tombstone("000000", "300000", 150), *tombstone("100000", "450000", 140), *tombstone("450000", "500000", 140)},
		21: {*tombstone("500000", "600000", 140), *tombstone("900000", "999999", 160)},
	}
	k := newPicker(v, Policy{})
	k.known.Ranges = func(num kv.FileNum) *kv.RangeTombstones { return kv.NewRangeTombstones(ranges[num]) }
	for oldest, want := range map[kv.SeqNum]uint64{kv.MaxSeqNum: 700, 160: 700, 159: 600, 149: 500, 139: 0} {
		k.known.OldestSnapshot = oldest
		require.InDelta(t, want<<20, k.covered(v.Deltas[0]), 1<<20, "oldest snapshot %d", oldest)
	}
	k.known.Ranges = nil
	require.Zero(t, k.covered(v.Deltas[0]))
}

// A table is dropped unread if range tombstones hide all its entries from every reader.
func TestPickDropsWhatIsCovered(t *testing.T) {
	v := build(shape{4, 100, 0}, shape{1, 1, 0.1}, shape{1, 1, 0}) // base: 10 to 13, deltas: 15, 14
	for name, c := range map[string]struct {
		tombstones []kv.Entry
		oldest     kv.SeqNum
		want       string
	}{
		"everything": {[]kv.Entry{*tombstone("0", "9999999", 250)}, kv.MaxSeqNum,
			"base (covered) of 0 deltas and 4 tables of the base: [10 11 12 13], unread"},
		"some tables": {[]kv.Entry{*tombstone("1", "600000", 250)}, kv.MaxSeqNum,
			"base (covered) of 0 deltas and 1 tables of the base: [11], unread"},
		"in pieces": {[]kv.Entry{*tombstone("250000", "300000", 250), *tombstone("300000", "5", 201)}, kv.MaxSeqNum,
			"base (covered) of 0 deltas and 1 tables of the base: [11], unread"},
		"but for a gap":            {[]kv.Entry{*tombstone("250000", "300000", 250), *tombstone("300001", "5", 201)}, kv.MaxSeqNum, "none"},
		"but for the last key":     {[]kv.Entry{*tombstone("25", "499999", 250)}, kv.MaxSeqNum, "none"},
		"as far as the number":     {[]kv.Entry{*tombstone("0", "9999999", 250)}, 250, "base (covered) of 0 deltas and 4 tables of the base: [10 11 12 13], unread"},
		"a snapshot is older":      {[]kv.Entry{*tombstone("0", "9999999", 250)}, 249, "none"},
		"older than what it hides": {[]kv.Entry{*tombstone("0", "9999999", 100)}, kv.MaxSeqNum, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			known := Known{OldestSnapshot: c.oldest, Ranges: func(num kv.FileNum) *kv.RangeTombstones {
				if num != 15 {
					return nil
				}
				return kv.NewRangeTombstones(c.tombstones)
			}}
			got, ok := Pick(v, Policy{BaseRatio: 1}, known)
			if ok && got.Reason != ReasonCovered {
				ok = false // less than a table of the base
			}
			assert.Equal(t, c.want, picked(got, ok))
		})
	}
	v.Base = nil
	got, ok := Pick(v, Policy{}, Known{OldestSnapshot: kv.MaxSeqNum, Ranges: func(num kv.FileNum) *kv.RangeTombstones {
		if num != 15 {
			return nil
		}
		return kv.NewRangeTombstones([]kv.Entry{*tombstone("0", "9999999", 250)})
	}})
	assert.Equal(t, "deltas (covered) of 1 deltas and 0 tables of the base: [14], unread", picked(got, ok))
}
