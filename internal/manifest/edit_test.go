package manifest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// example has three deltas and a base:
//
//	delta 0   30[c..k]              seq 70..90
//	delta 1   20[a..f] 21[h..m]     seq 40..60
//	delta 2   10[b..d] 11[k..p]     seq 20..35
//	base      1[a..c] 2[d..j] 3[m..z]  seq 1..18
func example() *Version {
	return &Version{
		Num: 40, Partition: 3, NextFile: 100, FlushedSeq: 95, MaxSeq: 90,
		Deltas: []Run{
			{table(30, "c", "k", 70, 90)},
			{table(20, "a", "f", 40, 60), table(21, "h", "m", 41, 59)},
			{table(10, "b", "d", 20, 30), table(11, "k", "p", 22, 35)},
		},
		Base: Run{table(1, "a", "c", 1, 18), table(2, "d", "j", 2, 17), table(3, "m", "z", 3, 16)},
	}
}

func layout(v *Version) [][]kv.FileNum {
	var all [][]kv.FileNum
	for _, run := range v.runs() {
		all = append(all, nums(run))
	}
	return all
}

type edits = []kv.FileNum

// cutInThree returns three tables with this many entries together, within the bounds of
// table 30, which has one tombstone.
func cutInThree(entries uint64) Run {
	run := Run{table(50, "c", "d", 70, 90), table(51, "e", "f", 70, 90), table(52, "g", "k", 70, 90)}
	run[0].Entries, run[1].Entries, run[2].Entries = entries-2, 1, 1
	return run
}

func TestEditsThatFit(t *testing.T) {
	for name, c := range map[string]struct {
		edit    Edit
		want    [][]kv.FileNum // deltas, newest first, then the base
		flushed kv.SeqNum
		max     kv.SeqNum
	}{
		"a flush adds the newest delta": {
			Edit{Kind: Flush, Added: Run{table(50, "a", "z", 96, 99)}, FlushedSeq: 100},
			[][]kv.FileNum{{50}, {30}, {20, 21}, {10, 11}, {1, 2, 3}}, 100, 99},
		"a flush of nothing moves the flushed seq": {
			Edit{Kind: Flush, FlushedSeq: 100},
			[][]kv.FileNum{{30}, {20, 21}, {10, 11}, {1, 2, 3}}, 100, 90},
		"the two newest deltas become one": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{table(50, "a", "g", 40, 90), table(51, "h", "m", 41, 60)}},
			[][]kv.FileNum{{50, 51}, {10, 11}, {1, 2, 3}}, 95, 90},
		"the two oldest deltas become one, at their place": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 21, 10, 11}, Added: Run{table(50, "a", "p", 20, 60)}},
			[][]kv.FileNum{{30}, {50}, {1, 2, 3}}, 95, 90},
		"deltas that leave nothing": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 21}},
			[][]kv.FileNum{{30}, {10, 11}, {1, 2, 3}}, 95, 90},
		"a range tombstone is cut where new tables begin": {
			Edit{Kind: CompactDeltas, Removed: edits{30}, Added: cutInThree(12)},
			[][]kv.FileNum{{50, 51, 52}, {20, 21}, {10, 11}, {1, 2, 3}}, 95, 90},
		"one table of the oldest delta goes into the base": {
			Edit{Kind: CompactBase, Removed: edits{10, 1, 2}, Added: Run{table(50, "a", "c", 1, 30), table(51, "d", "j", 2, 30)}},
			[][]kv.FileNum{{30}, {20, 21}, {11}, {50, 51, 3}}, 95, 90},
		"the rest of the oldest delta goes into the base": {
			Edit{Kind: CompactBase, Removed: edits{11, 3, 10, 1, 2}, Added: Run{table(50, "a", "z", 1, 35)}},
			[][]kv.FileNum{{30}, {20, 21}, {50}}, 95, 90},
		"the oldest delta whole and a part of the next": {
			Edit{Kind: CompactBase, Removed: edits{10, 11, 20, 1, 2, 3}, Added: Run{table(50, "a", "z", 1, 60)}},
			[][]kv.FileNum{{30}, {21}, {50}}, 95, 90},
		"everything becomes base": {
			Edit{Kind: CompactBase, Removed: edits{30, 20, 21, 10, 11, 1, 2, 3}, Added: Run{table(50, "a", "j", 1, 90), table(51, "k", "z", 3, 88)}},
			[][]kv.FileNum{{50, 51}}, 95, 90},
		"everything is dropped": {
			Edit{Kind: CompactBase, Removed: edits{30, 20, 21, 10, 11, 1, 2, 3}},
			[][]kv.FileNum{nil}, 95, 90},
		"a table of the base is rewritten": {
			Edit{Kind: CompactBase, Removed: edits{2}, Added: Run{table(50, "e", "i", 2, 17)}},
			[][]kv.FileNum{{30}, {20, 21}, {10, 11}, {1, 50, 3}}, 95, 90},
		"tables of several runs are replaced in their places": {
			Edit{Kind: Replace, Removed: edits{3, 20, 10, 2}, Places: edits{2, 20},
				Added: Run{table(50, "d", "i", 1, 16), table(51, "a", "b", 45, 60)}},
			[][]kv.FileNum{{30}, {51, 21}, {11}, {1, 50}}, 95, 90},
		"a delta of which nothing is left": {
			Edit{Kind: Replace, Removed: edits{30}},
			[][]kv.FileNum{{20, 21}, {10, 11}, {1, 2, 3}}, 95, 90},
		"a replaced table has older entries than before": {
			Edit{Kind: Replace, Removed: edits{21}, Places: edits{21}, Added: Run{table(50, "h", "m", 36, 59)}},
			[][]kv.FileNum{{30}, {20, 50}, {10, 11}, {1, 2, 3}}, 95, 90},
	} {
		t.Run(name, func(t *testing.T) {
			before := example()
			got, err := before.Apply(c.edit)
			require.NoError(t, err)
			assert.Equal(t, c.want, layout(got))
			assert.Equal(t, c.flushed, got.FlushedSeq)
			assert.Equal(t, c.max, got.MaxSeq)
			assert.Equal(t, before.Num, got.Num)
			assert.Equal(t, before.NextFile, got.NextFile)
			assert.Equal(t, example(), before, "Apply must not change the Version")
		})
	}
}

func TestEditsThatDoNotFit(t *testing.T) {
	with := func(m kv.TableMeta, change func(*kv.TableMeta)) Run {
		change(&m)
		return Run{m}
	}
	fresh := table(50, "a", "z", 96, 99)
	flush := func(run Run) Edit { return Edit{Kind: Flush, Added: run, FlushedSeq: 100} }
	for name, c := range map[string]struct {
		rule string
		edit Edit
	}{
		"no kind":                           {"unknown kind", Edit{}},
		"replacement of nothing":            {"E2", Edit{Kind: Replace}},
		"replacement of what is not there":  {"E2", Edit{Kind: Replace, Removed: edits{4}}},
		"replacement with the flushed seq":  {"E1", Edit{Kind: Replace, Removed: edits{30}, FlushedSeq: 100}},
		"replacement without a place":       {"E7", Edit{Kind: Replace, Removed: edits{2}, Added: Run{table(50, "d", "j", 2, 17)}}},
		"replacement in a place that stays": {"E7", Edit{Kind: Replace, Removed: edits{2}, Places: edits{3}, Added: Run{table(50, "m", "z", 3, 16)}}},
		"two replacements in one place": {"E7", Edit{Kind: Replace, Removed: edits{2}, Places: edits{2, 2},
			Added: Run{table(50, "d", "e", 2, 17), table(51, "f", "j", 2, 17)}}},
		"replacement of other keys": {"E7", Edit{Kind: Replace, Removed: edits{2}, Places: edits{2}, Added: Run{table(50, "d", "k", 2, 17)}}},
		"replacement that is newer": {"E7", Edit{Kind: Replace, Removed: edits{2}, Places: edits{2}, Added: Run{table(50, "d", "j", 2, 18)}}},
		"replacement with entries of an older delta": {"V6", Edit{Kind: Replace, Removed: edits{21}, Places: edits{21},
			Added: Run{table(50, "h", "m", 35, 59)}}},
		"places of a compaction":            {"E7", Edit{Kind: CompactBase, Removed: edits{2}, Places: edits{2}, Added: Run{table(50, "d", "j", 2, 17)}}},
		"flush falls back":                  {"E1", Edit{Kind: Flush, FlushedSeq: 94}},
		"flush of what was flushed":         {"E1", Edit{Kind: Flush, Added: Run{table(50, "a", "z", 95, 99)}, FlushedSeq: 100}},
		"flush beyond its own seq":          {"E1", Edit{Kind: Flush, Added: Run{fresh}, FlushedSeq: 98}},
		"flush removes":                     {"E2", Edit{Kind: Flush, Removed: edits{30}, FlushedSeq: 100}},
		"compaction moves the flushed seq":  {"E1", Edit{Kind: CompactDeltas, Removed: edits{30}, FlushedSeq: 100}},
		"nothing removed":                   {"E2", Edit{Kind: CompactDeltas, Added: Run{table(50, "c", "d", 70, 71)}}},
		"removed twice":                     {"E2", Edit{Kind: CompactDeltas, Removed: edits{30, 30}}},
		"removed but not there":             {"E2", Edit{Kind: CompactDeltas, Removed: edits{30, 77}}},
		"base removed by deltas":            {"E2", Edit{Kind: CompactDeltas, Removed: edits{10, 11, 1}}},
		"part of a delta":                   {"E3", Edit{Kind: CompactDeltas, Removed: edits{30, 20}}},
		"deltas not adjacent":               {"E3", Edit{Kind: CompactDeltas, Removed: edits{30, 10, 11}}},
		"newer delta into the base":         {"E4", Edit{Kind: CompactBase, Removed: edits{30, 1, 2, 3}}},
		"newer delta and part of the older": {"E4", Edit{Kind: CompactBase, Removed: edits{20, 21, 10, 1, 2, 3}}},
		"base table left out":               {"E4", Edit{Kind: CompactBase, Removed: edits{10, 2}}},
		"base table in a gap of the outputs": {"E4",
			Edit{Kind: CompactBase, Removed: edits{11}, Added: Run{table(50, "k", "l", 22, 35)}}},
		"base outputs overlap the base": {"V1", Edit{Kind: CompactBase, Removed: edits{10, 1, 2}, Added: Run{table(50, "a", "j", 1, 30), table(51, "j", "j", 2, 3)}}},
		"keys out of nowhere":           {"E5", Edit{Kind: CompactDeltas, Removed: edits{30}, Added: Run{table(50, "b", "k", 70, 90)}}},
		"keys past the inputs":          {"E5", Edit{Kind: CompactDeltas, Removed: edits{30}, Added: Run{table(50, "c", "l", 70, 90)}}},
		"numbers before the inputs":     {"E5", Edit{Kind: CompactDeltas, Removed: edits{30}, Added: Run{table(50, "c", "k", 69, 80)}}},
		"numbers past the inputs":       {"E5", Edit{Kind: CompactDeltas, Removed: edits{20, 21}, Added: Run{table(50, "a", "f", 40, 61)}}},
		"more entries than were read":   {"E5", Edit{Kind: CompactDeltas, Removed: edits{30}, Added: with(table(50, "c", "k", 70, 90), func(m *kv.TableMeta) { m.Entries = 11 })}},
		"more entries than cuts make":   {"E5", Edit{Kind: CompactDeltas, Removed: edits{30}, Added: cutInThree(13)}},
		"number in use":                 {"V3", flush(with(fresh, func(m *kv.TableMeta) { m.Num = 21 }))},
		"number of the manifest":        {"V3", flush(with(fresh, func(m *kv.TableMeta) { m.Num = 40 }))},
		"number not handed out":         {"V3", flush(with(fresh, func(m *kv.TableMeta) { m.Num = 100 }))},
		"number zero":                   {"V3", flush(with(fresh, func(m *kv.TableMeta) { m.Num = 0 }))},
		"no bytes":                      {"V4", flush(with(fresh, func(m *kv.TableMeta) { m.Size = 0 }))},
		"no entries":                    {"V4", flush(with(fresh, func(m *kv.TableMeta) { m.Entries, m.Deletes = 0, 0 }))},
		"more tombstones than entries":  {"V4", flush(with(fresh, func(m *kv.TableMeta) { m.Deletes = m.Entries + 1 }))},
		"empty key":                     {"V1", flush(with(fresh, func(m *kv.TableMeta) { m.Smallest = nil }))},
		"keys reversed":                 {"V1", flush(with(fresh, func(m *kv.TableMeta) { m.Largest = []byte("A") }))},
		"tables share a key":            {"V1", flush(Run{table(50, "a", "k", 96, 97), table(51, "k", "z", 98, 99)})},
		"tables out of order":           {"V1", flush(Run{table(50, "k", "z", 96, 97), table(51, "a", "c", 98, 99)})},
		"sequence numbers reversed":     {"V4", flush(with(fresh, func(m *kv.TableMeta) { m.MinSeq = 99; m.MaxSeq = 97 }))},
		"past the largest number":       {"V5", Edit{Kind: Flush, FlushedSeq: kv.MaxSeqNum + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			before := example()
			got, err := before.Apply(c.edit)
			require.ErrorContains(t, err, c.rule)
			assert.Nil(t, got)
			assert.Equal(t, example(), before, "Apply must not change the Version")
		})
	}
}

// Edits cannot make a version that breaks the order of time; a damaged or
// forged manifest could hold one.
func TestCheckRefusesDeltasOutOfOrder(t *testing.T) {
	require.NoError(t, example().check())
	v := example()
	v.Deltas[0], v.Deltas[1] = v.Deltas[1], v.Deltas[0]
	require.ErrorContains(t, v.check(), "V6")
	v = example()
	v.Base = Run{table(1, "a", "z", 1, 45)}
	require.ErrorContains(t, v.check(), "V7")
	v.Deltas = v.Deltas[2:]
	require.NoError(t, v.check(), "the oldest delta may be older than parts of the base")
	v = example()
	v.Deltas[1] = nil
	require.ErrorContains(t, v.check(), "V2")
	v = example()
	v.MaxSeq = v.FlushedSeq + 1
	require.ErrorContains(t, v.check(), "V5")
	v = example()
	v.MaxSeq = 89
	require.ErrorContains(t, v.check(), "V5")
}

func TestEditKindNames(t *testing.T) {
	assert.Equal(t, "flush deltas base edit(0) edit(9)",
		Flush.String()+" "+CompactDeltas.String()+" "+CompactBase.String()+" "+EditKind(0).String()+" "+EditKind(9).String())
}

// The position moves with the flushed seq, in the same edit, and stays in all others.
func TestThePositionMovesWithFlushes(t *testing.T) {
	v, err := example().Apply(Edit{Kind: Flush, FlushedSeq: 100, Position: []byte("a")})
	require.NoError(t, err)
	require.Equal(t, "a", string(v.Position))
	v, err = v.Apply(Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}})
	require.NoError(t, err)
	require.Equal(t, "a", string(v.Position))
	v, err = v.Apply(Edit{Kind: Flush, FlushedSeq: 101})
	require.NoError(t, err)
	require.Equal(t, "a", string(v.Position))
	_, err = v.Apply(Edit{Kind: CompactDeltas, Removed: edits{10, 11}, Position: []byte("b")})
	require.ErrorContains(t, err, "E1")
	_, err = v.Apply(Edit{Kind: Flush, FlushedSeq: 101, Position: make([]byte, maxPosition+1)})
	require.ErrorContains(t, err, "V9")
}
