package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// holdUntil holds a contest, with longer slots as long as a busy machine did too little
// in one of them.
func holdUntil(t *testing.T, o *contestOptions, c func() *contest, enough func(*workload.Summary) bool) []slot {
	t.Helper()
	for ; ; o.slot *= 2 {
		slots := hold(t, o, c())
		if !slices.ContainsFunc(slots, func(s slot) bool { return !enough(&s.Run.Summary) }) {
			return slots
		}
		t.Logf("too little in slots of %v: again", o.slot)
	}
}

func TestTransactionsAreChecked(t *testing.T) {
	for _, sync := range []bool{false, true} {
		o := testContestOptions(t, ours, "pebble")
		slots := holdUntil(t, o, func() *contest { return transactionContest(o, sync) }, func(r *workload.Summary) bool { return r.Put.Count > 0 })
		require.Len(t, slots, 4)
		for _, s := range slots {
			assert.Positive(t, s.Run.Summary.Generator.NanosPerOp, s.Cell)
			assert.Equal(t, int64(s.Run.Summary.Put.Count)*2*(24+readValueBytes), s.Run.UserBytes, s.Cell)
		}
	}
}

func TestScansRunBesidePutsAndGets(t *testing.T) {
	o := testContestOptions(t, ours, "pebble")
	slots := holdUntil(t, o, func() *contest { return scanMixContest(o) }, func(r *workload.Summary) bool {
		return r.Put.Count > 0 && r.Get.Count > 0 && r.Ops > r.Put.Count+r.Get.Count
	})
	require.Len(t, slots, 4)
	for _, s := range slots {
		assert.Positive(t, s.Run.Summary.Generator.NanosPerOp)
		assert.Equal(t, int64(s.Run.Summary.Put.Count)*(keyBytes+readValueBytes), s.Run.UserBytes)
	}
}

func TestAMixNoticesWrongAnswers(t *testing.T) {
	d := dataset{Keys: 310, ValueBytes: 20, Order: orderSorted}
	run := func(spoil func(*entries)) error {
		var e entries
		require.NoError(t, d.load(e.load))
		spoil(&e)
		m := scanMix{Span: loadgen.Span{Workers: 2, Operations: 20_000, Interval: time.Second}}
		require.NoError(t, m.validate(d))
		_, err := m.run(t.Context(), &e, d, loadgen.Observer{})
		return err
	}
	require.NoError(t, run(func(*entries) {}))
	require.ErrorContains(t, run(func(e *entries) { (*e)[7].Value[0]++ }), "wrong answer")
	require.ErrorContains(t, run(func(e *entries) { (*e)[7].Key[15]++ }), "wrong answer")
	require.Error(t, (&scanMix{}).validate(d))
	d.Point = true
	require.Error(t, (&scanMix{}).validate(d))
}

func TestAnEngineWithoutTransactionsIsReported(t *testing.T) {
	o := testContestOptions(t, "goleveldb")
	err := withArena(t.Context(), o, t.Output(), func(a *arena) error {
		_, err := a.hold(t.Context(), transactionContest(o, false))
		return err
	})
	require.ErrorContains(t, err, "the target has no transactions")
}

func TestTrialsThatMakeNoSenseAreRefused(t *testing.T) {
	o := testContestOptions(t, ours)
	for name, spoil := range map[string]func(*contest){
		"no records":    func(c *contest) { c.setup.Records = nil },
		"few records":   func(c *contest) { c.setup.Records.Count = 1 },
		"short records": func(c *contest) { c.setup.Records.ValueBytes = 1 },
		"no time":       func(c *contest) { c.cells[0].trial.Span.Duration = 0 },
		"nothing to do": func(c *contest) { c.cells[0].trial.Shape.Reads = 0 },
	} {
		c := transactionContest(o, false)
		require.NoError(t, c.validate())
		spoil(c)
		require.Error(t, c.validate(), name)
	}
}

func TestColdGetsReadFromTheDisk(t *testing.T) {
	o := testContestOptions(t, ours, "pebble-4k")
	o.rounds = 1
	for _, r := range []coldRead{coldUniform, coldZipf} {
		slots := holdUntil(t, o, func() *contest { return coldContest(o, r) }, func(r *workload.Summary) bool { return r.Get.Count > 100*coldThreads })
		require.Len(t, slots, 2)
		for _, s := range slots {
			// The counters are read while gets are under way, at both ends of the trial: one of each
			// thread may be in one of two counters alone.
			assert.InDelta(t, 1, s.Run.Summary.Found.Get, float64(2*coldThreads)/float64(s.Run.Summary.Get.Count), s.Cell)
			assert.Positive(t, s.Run.Read.Calls, s.Cell)
		}
	}
}

func TestFilesThatDoNotExistCannotBeForgotten(t *testing.T) {
	require.Error(t, whileCold(t.TempDir()+"/none", func() error { return nil }))
	err := whileCold(t.TempDir(), func() error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
}

func TestPagesOfTheDiskAreCountedByBlocks(t *testing.T) {
	s := slot{Run: outcome{Read: readBytes{Disk: 3 * 4096, Blocks: 2}}}
	assert.InDelta(t, 1.5, diskBytesOfPages(&s), 1e-9)
	none := judge.Numbers([]float64{diskBytesOfPages(&slot{})})
	assert.Empty(t, none)
}

func TestAllThreadsRunInEachRound(t *testing.T) {
	o := testContestOptions(t, "kvd-1", ours4)
	o.slot = 20 * time.Millisecond
	c := crossContest(o, crossMixes[1])
	c.cells = c.cells[:2]
	var turns []string
	for _, s := range hold(t, o, c) {
		turns = append(turns, s.Cell[len("GET_HEAVY by partitions, "):]+" "+s.Engine)
	}
	assert.Equal(t, []string{
		"1 threads kvd-1", "1 threads kvd-4", "2 threads kvd-1", "2 threads kvd-4",
		"1 threads kvd-4", "1 threads kvd-1", "2 threads kvd-4", "2 threads kvd-1",
	}, turns)
}

func TestTwiceTheThreadsAreComparedWithTheThreads(t *testing.T) {
	const mix = "GET_HEAVY"
	slots := join(
		rated(crossCell(mix, 1), ours16, 100, 10), rated(crossCell(mix, 2), ours16, 200, 20),
		rated(crossCell(mix, 8), ours16, 400, 40), rated(crossCell(mix, 16), ours16, 360, 36), // 10 % slower
		rated(crossCell(mix, 1), ours, 100, 10), rated(crossCell(mix, 1), "kvd-1", 100, 20), rated(crossCell(mix, 1), ours4, 50, 5))
	derived := derive(slots)
	judged := make(map[string]verdict)
	for _, g := range crossGoals(mix) {
		if v, ok := g.judge(derived); ok {
			judged[g.Row] = v
		}
	}
	require.Len(t, judged, 2)
	v := judged["GET_HEAVY, twice the threads, worst, kvd-16"]
	assert.InDelta(t, 0.9, v.Figure.Median, 1e-9)
	assert.False(t, v.Reached)
	v = judged["GET_HEAVY beside 1, 4, 16 partitions, worst of 1 to 32 threads"]
	assert.Equal(t, "kvd-1", v.Peer)
	assert.InDelta(t, 0.75, v.Figure.Median, 1e-9)
}
