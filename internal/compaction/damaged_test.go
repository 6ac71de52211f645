package compaction

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// Pick leaves damaged tables where they are and merges what is around them.
func TestPickLeavesDamagedTablesAlone(t *testing.T) {
	big := shape{40, 100, 0}
	for name, c := range map[string]struct {
		deltas  []shape
		policy  Policy
		damaged []kv.FileNum
		want    string
	}{
		"a group is divided": {deltas: []shape{one(64), one(64), one(64), one(64), one(64)}, damaged: []kv.FileNum{52}, want: "none"},
		"and goes on at either side": {deltas: []shape{one(64), one(64), one(64), one(64), one(64)}, damaged: []kv.FileNum{50},
			want: "deltas (tier) of 4 deltas and 0 tables of the base: [54 53 52 51]"},
		"too many, without the damaged one": {deltas: []shape{one(1), one(3), one(7), one(15), one(31)}, policy: Policy{MaxDeltas: 4}, damaged: []kv.FileNum{53},
			want: "deltas (too many) of 2 deltas and 0 tables of the base: [52 51]"},
		"a damaged table of the base stays": {deltas: []shape{{10, 100, 0}}, damaged: []kv.FileNum{10},
			want: "base (size) of 1 deltas and 4 tables of the base: [51 14 15 16 17]"},
		"a damaged table of the oldest delta stays": {deltas: []shape{{10, 100, 0}}, damaged: []kv.FileNum{50, 51},
			want: "base (size) of 1 deltas and 4 tables of the base: [52 18 19 20 21]"},
		"what can only go into a damaged base is merged with newer deltas": {
			deltas: []shape{one(1000), one(1000), one(1000), one(1000)}, damaged: []kv.FileNum{10},
			want: "deltas (tier) of 4 deltas and 0 tables of the base: [53 52 51 50]"},
		"nothing is left": {deltas: []shape{one(1000)}, damaged: []kv.FileNum{50}, want: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, picked(Pick(build(big, c.deltas...), c.policy, knownDamaged(c.damaged))))
		})
	}
}

func knownDamaged(files []kv.FileNum) Known {
	return Known{OldestSnapshot: kv.MaxSeqNum, Damaged: func(num kv.FileNum) bool { return slices.Contains(files, num) }}
}

// All goes on beside damaged tables, and ends where they allow no more.
func TestAllLeavesDamagedTablesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		base    shape
		deltas  []shape
		damaged []kv.FileNum
		want    string
	}{
		"a small partition takes more steps": {shape{2, 30, 0}, []shape{one(1), one(9)}, []kv.FileNum{10},
			"deltas (all) of 2 deltas and 0 tables of the base: [13 12]"},
		"the deltas on the larger side": {shape{4, 100, 0}, []shape{one(1), one(2), one(3), one(4)}, []kv.FileNum{15},
			"deltas (all) of 2 deltas and 0 tables of the base: [17 16]"},
		"the oldest delta into the base":          {shape{4, 100, 0}, []shape{one(1), one(2)}, []kv.FileNum{15}, "base (all) of 1 deltas and 4 tables of the base: [14 10 11 12 13]"},
		"a damaged oldest delta keeps the others": {shape{4, 100, 0}, []shape{one(1), one(2)}, []kv.FileNum{14}, "none"},
		"and so does a damaged base":              {shape{2, 30, 0}, []shape{one(9)}, []kv.FileNum{10}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, picked(All(build(c.base, c.deltas...), Policy{}, knownDamaged(c.damaged))))
		})
	}
}
