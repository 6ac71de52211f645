package compaction

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// shape is a run of equal tables that together span all keys, with ten entries
// per MiB, or more if there are more tombstones.
type shape struct {
	tables  int
	mib     uint64  // of each table
	deletes float64 // tombstones, as a multiple of ten per MiB
}

// one is a run of one table without tombstones.
func one(mib uint64) shape { return shape{1, mib, 0} }

// build makes a Version of deltas, newest first, and a base. Table numbers ascend
// from 10, the base first, so that a test can name them.
func build(base shape, deltas ...shape) *manifest.Version {
	v := &manifest.Version{Num: 1, NextFile: 1 << 20, FlushedSeq: kv.SeqNum(100 * (len(deltas) + 1)), MaxSeq: kv.SeqNum(100 * (len(deltas) + 1))}
	num := kv.FileNum(9)
	run := func(s shape, age int) manifest.Run {
		var run manifest.Run
		for i := range s.tables {
			num++
			deletes := uint64(s.deletes * float64(10*s.mib))
			entries := max(10*s.mib, deletes)
			run = append(run, kv.TableMeta{
				Num: num, Size: s.mib << 20, Entries: entries, Deletes: deletes,
				Smallest: fmt.Appendf(nil, "%06d", i*1_000_000/s.tables), Largest: fmt.Appendf(nil, "%06d", (i+1)*1_000_000/s.tables-1),
				MinSeq: kv.SeqNum(100*age + 1), MaxSeq: kv.SeqNum(100*age + 100),
			})
		}
		return run
	}
	v.Base = run(base, 0)
	for i := range deltas {
		age := i + 1
		v.Deltas = append([]manifest.Run{run(deltas[len(deltas)-age], age)}, v.Deltas...)
	}
	return v
}

func TestPick(t *testing.T) {
	const mib = 1 << 20
	big := shape{40, 100, 0} // a base of 4,000 MiB
	for name, c := range map[string]struct {
		version *manifest.Version
		policy  Policy
		want    string
	}{
		"nothing at all":        {build(shape{}), Policy{}, "none"},
		"a base alone":          {build(big), Policy{}, "none"},
		"three alike wait":      {build(big, one(64), one(64), one(64)), Policy{}, "none"},
		"four alike become one": {build(big, one(64), one(64), one(64), one(64)), Policy{}, "deltas (tier) of 4 deltas and 0 tables of the base: [53 52 51 50]"},
		"up to twice the largest is alike": {build(big, one(10), one(20), one(40), one(80)), Policy{},
			"deltas (tier) of 4 deltas and 0 tables of the base: [53 52 51 50]"},
		"more than twice is not": {build(big, one(10), one(21), one(43), one(87)), Policy{}, "none"},
		"a small one between large ones": {build(big, one(64), one(1), one(64), one(64), one(200)), Policy{},
			"deltas (tier) of 4 deltas and 0 tables of the base: [54 53 52 51]"},
		"large ones after small ones": {build(big, one(1), one(2), one(64), one(64), one(64), one(64)), Policy{},
			"deltas (tier) of 4 deltas and 0 tables of the base: [53 52 51 50]"},
		"fan-in of two": {build(big, one(64), one(64), one(300)), Policy{DeltaFanIn: 2}, "deltas (tier) of 2 deltas and 0 tables of the base: [52 51]"},
		"more than may be": {build(big, one(1), one(3), one(7), one(15), one(31)), Policy{MaxDeltas: 3},
			"deltas (too many) of 3 deltas and 0 tables of the base: [54 53 52]"},
		"into an empty base": {build(shape{}, one(64)), Policy{}, "base (size) of 1 deltas and 0 tables of the base: [10]"},
		"a quarter of the base": {build(big, shape{10, 100, 0}), Policy{},
			"base (size) of 1 deltas and 4 tables of the base: [50 10 11 12 13]"},
		"less than a quarter waits":        {build(big, shape{10, 99, 0}), Policy{}, "none"},
		"ratio of ten":                     {build(big, shape{10, 40, 0}), Policy{BaseRatio: 10}, "base (size) of 1 deltas and 4 tables of the base: [50 10 11 12 13]"},
		"together less than half the base": {build(big, one(100), shape{3, 300, 0}, shape{3, 333, 0}), Policy{}, "none"},
		"together half the base": {build(big, one(101), shape{3, 300, 0}, shape{3, 333, 0}), Policy{},
			"base (space) of 1 deltas and 14 tables of the base: [50 10 11 12 13 14 15 16 17 18 19 20 21 22 23]"},
		"W5: steps are cut by bytes": {build(big, shape{20, 100, 0}), Policy{DrainBytes: 900 * mib},
			"base (size) of 1 deltas and 6 tables of the base: [50 51 52 10 11 12 13 14 15]"},
		"one table however large": {build(shape{10, 1, 0}, shape{2, 100, 0}), Policy{DrainBytes: 1},
			"base (size) of 1 deltas and 5 tables of the base: [20 10 11 12 13 14]"},
		"tombstones worth a quarter of the base": {build(big, withDeletes(1, 9995)), Policy{}, "base (tombstones) of 1 deltas and 40 tables of the base: [50 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49]"},
		"tombstones worth less wait":             {build(big, withDeletes(1, 9980)), Policy{}, "none"},
		"tombstones of many deltas are gathered": {build(big, withDeletes(1, 5001), one(64), withDeletes(1, 5001)), Policy{}, "deltas (tombstones) of 3 deltas and 0 tables of the base: [52 51 50]"},
		"tombstones alone, and no base":          {build(shape{}, withDeletes(1, 10)), Policy{}, "base (size) of 1 deltas and 0 tables of the base: [10]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, picked(Pick(c.version, c.policy, Known{OldestSnapshot: kv.MaxSeqNum})))
			if c.want == "none" {
				assert.Zero(t, Debt(c.version, c.policy))
			}
		})
	}
}

// withDeletes is a delta of one table with this many tombstones and nothing else.
// Against a base of ten entries per MiB, ten of them are worth one MiB more.
func withDeletes(mib, deletes uint64) shape { return shape{1, mib, float64(deletes) / float64(10*mib)} }

func picked(c Choice, ok bool) string {
	if !ok {
		return "none"
	}
	return c.String()
}

// The table with the least overlap for its bytes is drained first, wherever it is.
func TestDrainBeginsWhereTheDeltaIsDense(t *testing.T) {
	v := build(shape{10, 100, 0}, shape{4, 100, 0})
	v.Deltas[0][2].Smallest, v.Deltas[0][2].Largest = []byte("610000"), []byte("690000")
	c, ok := Pick(v, Policy{DrainBytes: 1}, Known{OldestSnapshot: kv.MaxSeqNum})
	require.True(t, ok)
	require.Equal(t, "base (size) of 1 deltas and 1 tables of the base: [22 16]", c.String())
	c, ok = Pick(v, Policy{DrainBytes: 700 << 20}, Known{OldestSnapshot: kv.MaxSeqNum})
	require.True(t, ok)
	require.Equal(t, "base (size) of 1 deltas and 4 tables of the base: [22 23 16 17 18 19]", c.String())
}

func TestDeadTombstonesInTheBaseGoWhenNoSnapshotNeedsThem(t *testing.T) {
	v := build(shape{4, 100, 0.25}, one(1))
	for oldest, want := range map[kv.SeqNum]string{
		kv.MaxSeqNum: "base (tombstones) of 0 deltas and 1 tables of the base: [10]",
		100:          "base (tombstones) of 0 deltas and 1 tables of the base: [10]",
		99:           "none",
	} {
		assert.Equal(t, want, picked(Pick(v, Policy{}, Known{OldestSnapshot: oldest})), "oldest snapshot %d", oldest)
	}
	v = build(shape{4, 100, 0.24}, one(1))
	require.Equal(t, "none", picked(Pick(v, Policy{}, Known{OldestSnapshot: kv.MaxSeqNum})), "too few")
}

// E11: used by "compact everything" and by tests that wait until no delta is left.
func TestAll(t *testing.T) {
	for name, c := range map[string]struct {
		version *manifest.Version
		want    string
	}{
		"nothing":             {build(shape{}), "none"},
		"all base already":    {build(shape{4, 100, 0.5}), "none"},
		"small: in one step":  {build(shape{2, 30, 0}, one(1), one(9)), "base (all) of 2 deltas and 2 tables of the base: [13 12 10 11]"},
		"large: deltas first": {build(shape{4, 100, 0}, one(1), one(9)), "deltas (all) of 2 deltas and 0 tables of the base: [15 14]"},
		"large: then the base, bit by bit": {build(shape{40, 10, 0}, shape{10, 10, 0}),
			"base (all) of 1 deltas and 8 tables of the base: [50 51 10 11 12 13 14 15 16 17]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, picked(All(c.version, Policy{}, Known{})))
		})
	}
}

func TestDebtIsWhatMustBeRead(t *testing.T) {
	tiers := build(shape{40, 100, 0}, one(8), one(8), one(8), one(8), one(64), one(64), one(64), one(64))
	require.Equal(t, uint64(4*8+4*64)<<20, Debt(tiers, Policy{}))
	drain := build(shape{40, 100, 0}, one(8), shape{10, 100, 0})
	require.Equal(t, uint64(1000+4000)<<20, Debt(drain, Policy{}))
}

func TestPolicyKeepsItsBounds(t *testing.T) {
	p := Policy{DeltaFanIn: 1, MaxDeltas: -1}.withDefaults()
	require.Equal(t, Policy{DeltaFanIn: 2, BaseRatio: 4, MaxDeltas: 1, DrainBytes: 128 << 20, MaxGarbage: 50}, p)
}
