package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// rated returns one slot a round with these rates, and with the processor time that two
// busy processors would take for an operation.
func rated(cell, engine string, rates ...float64) (slots []slot) {
	for i, rate := range rates {
		s := slot{Cell: cell, Engine: engine, Round: i, Budget: 100}
		s.Run.Summary.OpsPerSecond = rate
		s.Run.Summary.CPUMicrosPerOp = 2e6 / rate
		slots = append(slots, s)
	}
	return slots
}

func join(lists ...[]slot) (all []slot) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestTheBestPeerHasTheBestMedianAndIsNoneOfOurs(t *testing.T) {
	slots := join(rated("c", ours, 90, 90, 90), rated("c", "pebble", 10, 30, 80), rated("c", "bbolt", 20, 35, 40), rated("d", "badger", 1000))
	assert.Equal(t, "bbolt", bestPeer(slots, "c", opsPerSecond))
	assert.Equal(t, "pebble", bestPeer(rated("c", "pebble", 1), "c", opsPerSecond))
	assert.Equal(t, "bbolt", bestPeer(slots, "c", cpuPerOp), "less is better")
	assert.Empty(t, bestPeer(slots, "e", opsPerSecond))
	assert.Empty(t, bestPeer(rated("c", ours4, 1), "c", opsPerSecond))
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	// In the second round the machine is ten times slower, in the third ours is twice
	// as slow.
	slots := join(rated("c", ours4, 200, 20, 100), rated("c", "pebble", 100, 10, 100))
	assert.Equal(t, judge.Spread{Median: 2, Least: 1, Most: 2}, judge.Ratios(slots, "c", ours4, "pebble", opsPerSecond))
	assert.True(t, math.IsNaN(judge.Ratios(slots, "c", ours4, "bbolt", opsPerSecond).Median))
}

func TestAGoalIsReachedByTheMedianRatio(t *testing.T) {
	g := newGoal("row", "c", opsPerSecond, judge.BestOfPeers, 2)
	for ourRate, reached := range map[float64]bool{199: false, 200: true, 300: true} {
		v, ok := g.Judge(join(rated("c", ours4, 1, ourRate, 1000), rated("c", "pebble", 100, 100, 100), rated("c", "bbolt", 99, 99, 99)), ours4, isPeer)
		require.True(t, ok)
		assert.Equal(t, reached, v.Reached, "at %v", ourRate)
		assert.Equal(t, "pebble", v.Peer)
	}
	_, ok := g.Judge(rated("c", ours4, 100), ours4, isPeer)
	assert.False(t, ok, "no peer to compare with")
	_, ok = g.Judge(rated("c", "pebble", 100), ours4, isPeer)
	assert.False(t, ok, "ours did not take part")
	_, ok = g.Judge(rated("d", ours4, 100), ours4, isPeer)
	assert.False(t, ok, "another cell")
}

func TestAGoalAgainstOnePeerLooksAtNoBetterOne(t *testing.T) {
	g := newGoal("row", "c", opsPerSecond, "pebble", 5)
	slots := join(rated("c", ours4, 50), rated("c", "pebble", 10), rated("c", "bbolt", 40))
	v, ok := g.Judge(slots, ours4, isPeer)
	require.True(t, ok)
	assert.True(t, v.Reached)
	_, ok = g.Judge(join(rated("c", ours4, 50), rated("c", "bbolt", 40)), ours4, isPeer)
	assert.False(t, ok, "the peer did not take part")
}

func TestOfSeveralCellsTheWorstCounts(t *testing.T) {
	g := newGoal("row", "", stall, judge.NoPeer, 100).in("a", "b", "not measured")
	a, b := rated("a", ours4, 1, 1), rated("b", ours4, 1, 1)
	a[0].Run.Summary.LongestStallNanos = int64(90 * time.Millisecond)
	b[1].Run.Summary.LongestStallNanos = int64(120 * time.Millisecond)
	v, ok := g.Judge(join(b, a), ours4, isPeer)
	require.True(t, ok)
	assert.False(t, v.Reached)
	figure, want := v.Spelled()
	assert.Equal(t, "120.00 ms (0.00-120.00)", figure, "the worst of the rounds too")
	assert.Equal(t, "<= 100 ms", want)

	v, ok = g.Judge(a, ours4, isPeer)
	require.True(t, ok)
	assert.True(t, v.Reached)
}

func TestAFigureThatASlotCouldNotTellDoesNotCount(t *testing.T) {
	g := newGoal("row", "c", merging, judge.NoPeer, 0.8)
	slots := rated("c", ours4, 1, 1)
	_, ok := g.Judge(slots, ours4, isPeer)
	assert.False(t, ok, "no seconds")
	slots[1].Run.Seconds = []second{{Quiet: stretch{100, time.Second}}, {While: stretch{75, time.Second}}, {OpsPerSecond: 5}}
	v, ok := g.Judge(slots, ours4, isPeer)
	require.True(t, ok)
	assert.Equal(t, 0.75, v.Figure.Median)
	assert.False(t, v.Reached)
}

func TestSlowestOfMedianSecond(t *testing.T) {
	assert.Equal(t, 0.25, slowestOfMedian([]second{{OpsPerSecond: 4}, {OpsPerSecond: 1}, {OpsPerSecond: 6}}))
	assert.True(t, math.IsNaN(slowestOfMedian(nil)))
}

func TestMergingIsComparedWithTheQuietTimeNextToIt(t *testing.T) {
	const tenth = 100 * time.Millisecond
	seconds := []second{
		{Quiet: stretch{100, 5 * tenth}, While: stretch{50, 5 * tenth}}, // half the rate, of its own second
		{Quiet: stretch{10, 10 * tenth}},
		{Quiet: stretch{10, 10 * tenth}, OpsPerSecond: 1},
		{While: stretch{5, 10 * tenth}}, // half that of the second before, for the next is too little quiet
		{Quiet: stretch{1e6, tenth / 2}, While: stretch{}},
	}
	assert.InDelta(t, 0.5, mergingOfQuiet(seconds), 1e-9)
	assert.InDelta(t, 0.5, mergingOfQuiet(seconds[2:]), 1e-9)
	assert.True(t, math.IsNaN(mergingOfQuiet(seconds[1:3])), "never merging")
	assert.True(t, math.IsNaN(mergingOfQuiet(seconds[3:])), "never quiet")
	assert.True(t, math.IsNaN(mergingOfQuiet(nil)))
	both := []second{{Quiet: stretch{300, 10 * tenth}}, {While: stretch{100, 10 * tenth}}, {Quiet: stretch{100, 10 * tenth}}}
	assert.InDelta(t, 0.5, mergingOfQuiet(both), 1e-9, "two are equally near")
}

func TestTheTableSaysWhatMergesCost(t *testing.T) {
	slots := rated(mergingCell, ours4, 100)
	half := 0.5
	slots[0].Run.Seconds = []second{{Merging: &half, Quiet: stretch{50, time.Second / 2}, While: stretch{40, time.Second / 2}}}
	var out bytes.Buffer
	require.NoError(t, printSlots(&out, slots))
	assert.Contains(t, out.String(), "kvd-4 merged in 50.0 % of the time, and then had 0.80 of the rate of quiet time: in all 10.0 % less\n")
}

func TestTheShareOfMergingIsThatOfAllSeconds(t *testing.T) {
	all, half := 1.0, 0.5
	assert.InDelta(t, 0.75, mergingShare([]second{{Merging: &all}, {Merging: &half}}), 1e-9)
	assert.True(t, math.IsNaN(mergingShare([]second{{Merging: &all}, {}})))
	assert.True(t, math.IsNaN(mergingShare(nil)))
}

func TestTheRateOfTheDiskIsComparedWithWhatReachedIt(t *testing.T) {
	s := slot{DiskRate: 100, Run: outcome{UserBytes: 1000, SyncTime: 5 * time.Second}}
	s.Run.Summary.Seconds = 15
	assert.InDelta(t, 0.5, userRateOfDisk(&s), 1e-9)
}

func TestEveryGoalNamesACellOfBothPlans(t *testing.T) {
	for name, p := range map[string]*plan{"short": &shortPlan, "long": &longPlan} {
		var measured []string
		for _, o := range []*scanOptions{&p.scan, &p.looseScan} {
			require.NoError(t, o.validate())
			for _, s := range o.shapes() {
				measured = append(measured, scanCell(s, o.loose))
			}
		}
		for _, c := range p.contests() {
			require.NoError(t, c.validate(), "%s: %s", name, c.name)
			for _, e := range c.engines {
				_, err := findEngine(e)
				require.NoError(t, err)
			}
			for _, cell := range c.cells {
				assert.NotContains(t, measured, cell.name, "a name twice")
				measured = append(measured, cell.name)
			}
		}
		for _, mix := range crossMixes {
			for _, engine := range p.cross.engines {
				measured = append(measured, twiceCells(mix.Name, engine)...)
			}
		}
		for _, g := range goals {
			if name == "long" {
				assert.Subset(t, measured, g.Cells, g.Row)
			} else {
				assert.NotEmpty(t, g.Cells, g.Row)
			}
		}
	}
}

func TestTheFinalTableSaysWhatIsReached(t *testing.T) {
	cell := putCell(128, 256)
	slots := join(rated(cell, ours, 300e3, 310e3, 290e3), rated(cell, ours4, 200e3, 200e3, 200e3), rated(cell, "pebble", 100e3, 100e3, 100e3))
	var out bytes.Buffer
	require.NoError(t, printVerdicts(&out, slots))
	assert.Regexp(t, `sync put, 128 B, 256 writers +pebble +100\.0 k ops/s +3\.00x \(2\.90-3\.10\) +3\.00x +2\.00x \(2\.00-2\.00\) +>= 2\.8x +yes`, out.String())

	out.Reset()
	require.NoError(t, printVerdicts(&out, join(rated(cell, ours, 100), rated(cell, "pebble", 100))))
	assert.Regexp(t, `1\.00x \(1\.00-1\.00\) +1\.00x +- +>= 2\.8x +NO`, out.String())

	out.Reset()
	without := join(rated(cell, ours4, 300), rated(cell, "pebble", 100))
	require.NoError(t, printVerdicts(&out, without))
	assert.Regexp(t, `pebble +0\.1 k ops/s +- +3\.00x +3\.00x \(3\.00-3\.00\) +>= 2\.8x +-`, out.String(), "only the default store is judged")
	out.Reset()
	require.NoError(t, printUnjudged(&out, without))
	assert.Contains(t, out.String(), "NOT MEASURED: "+cell+"\n")

	out.Reset()
	require.NoError(t, printUnjudged(&out, slots))
	assert.Contains(t, out.String(), "NOT MEASURED: "+loadCell+"\n")
	assert.NotContains(t, out.String(), cell)

	out.Reset()
	require.NoError(t, printSlots(&out, slots))
	assert.Regexp(t, `kvd +300\.0 +3\.00 \(2\.90-3\.10\) +6\.67`, out.String())
	assert.NotContains(t, out.String(), "NaN")
}

func TestTheGeneratorsCostIsTheLeastAndItsShareTheLargest(t *testing.T) {
	slots := join(rated("c", ours, 1e6, 1e6), rated("c", "pebble", 2e6, 2e6), rated("d", "bbolt", 1e9)) // 2 us, 1 us
	for i, nanos := range []int64{300, 200, 250, 900, 1} {
		slots[i].Run.Summary.Generator = loadgen.Generator{NanosPerOp: nanos}
	}
	nanos, share := generatorCost(slots, "c")
	assert.Equal(t, int64(200), nanos)
	assert.InDelta(t, 0.2, share, 1e-9)
	nanos, share = generatorCost(rated("c", ours, 1), "c")
	assert.Zero(t, nanos)
	assert.Zero(t, share)
}
