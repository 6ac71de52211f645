package experiment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// queue measures a server with random arrivals that does capacity operations a second: its
// latency grows as 1/(1-load), and what is over capacity is not done.
func queue(capacity float64, asked *[]uint64) func(context.Context, uint64, *results.Cell) (*results.Run, error) {
	return func(_ context.Context, rate uint64, _ *results.Cell) (*results.Run, error) {
		*asked = append(*asked, rate)
		const seconds = 10
		done := min(float64(rate), capacity)
		if rate == 0 {
			done = 0.8 * capacity // a closed loop with few callers
		}
		mean := 1e9
		if float64(rate) < capacity {
			mean = 1e6 / (1 - float64(rate)/capacity)
		}
		t := &loadgen.Trial{Seconds: seconds, Ops: uint64(done * seconds), OpsPerSecond: done, OfferedPerSecond: rate,
			All:  loadgen.Latency{P50: int64(mean), P99: int64(4.6 * mean), P999: int64(6.9 * mean), Max: int64(10 * mean)},
			Late: &loadgen.Late{Busy: uint64(max(float64(rate)-capacity, 0) * seconds)}, Refused: rate / 100}
		t.Operations = []loadgen.Operation{{Name: "put", Kind: loadgen.Kind{Count: t.Ops}}}
		return &results.Run{Trial: t, Activity: &results.Activity{
			OpsPerWriteBatch: 1 + float64(rate)/1000, LogSyncs: 1 + t.Ops/8,
			WriteBatches: [][2]uint64{{1, 300}, {4, 100}, {16, rate}},
		}}, nil
	}
}

func TestASweepFindsTheKneeByItself(t *testing.T) {
	var asked []uint64
	r := &results.Result{Version: results.Version, Experiment: "sweep"}
	s := &Sweep{Runs: 2, Params: []results.Param{{Name: "mix", Value: "m"}, {Name: "durability", Value: "sync"}}, Measure: queue(10_000, &asked)}
	require.NoError(t, s.Run(t.Context(), r))
	assert.EqualValues(t, 0, asked[0], "a closed loop comes first")
	assert.EqualValues(t, 800, asked[1])
	for _, c := range r.Cells {
		assert.Len(t, c.Runs, 2, c.Name())
	}
	c := newCurve(r)
	assert.IsIncreasing(t, c.loads)
	// A p99 of ten times that at 800/s is reached at 1 - (1-0.08)/10 = 90.8 % of the capacity.
	assert.InDelta(t, 9070, c.loads[c.knee], 20)
	assert.Greater(t, len(c.loads), c.knee+2, "loads beyond the knee")
	assert.Greater(t, c.loads[len(c.loads)-1], 10_000.0)

	page := SweepPage(r)
	assert.Regexp(t, `^The knee is at 9\.07k operations/s, with a p99 of 4\d(\.\d)? ms\. Of 9\.\d+k operations/s it did`, page.Lead)
	html := page.HTML()
	for _, says := range []string{"knee: 9.07k/s", "offered operations/s", "began over 1 ms late", "refused", "writes a micro-batch", "10x the shortest p99", "(knee)",
		"Sizes of micro-batches by offered load", "% of the batches", "writes a sync of the log"} {
		assert.Contains(t, html, says)
	}
}

// TestTheAnatomyOfBatchesHasAColumnForEachLoad: with the share of each size.
func TestTheAnatomyOfBatchesHasAColumnForEachLoad(t *testing.T) {
	var asked []uint64
	r := &results.Result{Version: results.Version, Experiment: "sweep"}
	s := &Sweep{Runs: 1, Rates: []uint64{100, 400, 600}, Measure: queue(10_000, &asked)}
	require.NoError(t, s.Run(t.Context(), r))
	c := newCurve(r)
	heat := c.batchSizes(func(a *results.Activity) [][2]uint64 { return a.WriteBatches })
	assert.Equal(t, []float64{0, 250, 500, 700}, heat.X)
	require.Len(t, heat.Y, 6, "edges of the sizes 1, 2, 4, 8 and 16")
	assert.Equal(t, []float64{60, 0, 20, 0, 20}, heat.Count[0])
	assert.Equal(t, []float64{30, 0, 10, 0, 60}, heat.Count[2])
	assert.Nil(t, c.batchSizes(func(a *results.Activity) [][2]uint64 { return a.ReadBatches }))
	assert.Nil(t, c.batchSizes(func(*results.Activity) [][2]uint64 { return [][2]uint64{{1, 9}} }), "all of one size")
	assert.Nil(t, c.writesPerSync(), "writes did not wait for syncs")

	one := &results.Result{Version: results.Version, Experiment: "sweep", Cells: r.Cells[:1]}
	assert.Nil(t, newCurve(one).anatomy(), "no second load to compare with")
}

// TestASweepThatIsResumedAsksForWhatIsMissing: wherever it ended, it offers the loads that it
// would have offered without the interruption.
func TestASweepThatIsResumedAsksForWhatIsMissing(t *testing.T) {
	var all []uint64
	sweep := func(s Sweep, r *results.Result, most int, asked *[]uint64) error {
		measure := queue(10_000, asked)
		s.Measure = func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
			if len(*asked) == most {
				return nil, context.Canceled
			}
			return measure(ctx, rate, cell)
		}
		return s.Run(t.Context(), r)
	}
	for _, s := range []Sweep{{}, {Rates: []uint64{100, 200, 300}}} {
		all, s.Runs = nil, 2
		require.NoError(t, sweep(s, &results.Result{}, -1, &all))
		for most := 2; most < len(all); most++ {
			var asked []uint64
			r := &results.Result{}
			require.ErrorIs(t, sweep(s, r, most, &asked), context.Canceled)
			assert.False(t, s.Complete(t.Context(), r))
			require.NoError(t, sweep(s, r, -1, &asked))
			assert.Equal(t, all, asked, "ended after %d", most)
			assert.True(t, s.Complete(t.Context(), r))
		}
	}
}

func TestTheKneeOfAnObjectiveIsTheHighestLoadThatMeetsIt(t *testing.T) {
	var asked []uint64
	r := &results.Result{Version: results.Version, Experiment: "sweep", Objectives: "p99<10ms"}
	s := &Sweep{Runs: 1, Rates: []uint64{6000, 1000, 5000, 2000}, Measure: queue(10_000, &asked)}
	require.NoError(t, s.Run(t.Context(), r))
	assert.Equal(t, []uint64{1000, 2000, 5000, 6000}, asked)
	c := newCurve(r)
	assert.Equal(t, 5000.0, c.loads[c.knee], "4.6 ms / (1 - 0.5)")
	assert.Contains(t, c.rule(), "p99<10ms")
}

// TestEachRunOfALoadMustBearIt: not only one with the median rate, which may be any of them.
func TestEachRunOfALoadMustBearIt(t *testing.T) {
	var asked []uint64
	measure := queue(10_000, &asked)
	r := &results.Result{Version: results.Version, Experiment: "sweep", Objectives: "p99<10ms"}
	s := &Sweep{Runs: 3, Rates: []uint64{1000, 2000, 5000}, Measure: func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
		run, err := measure(ctx, rate, cell)
		if rate == 5000 && len(cell.Runs) == 2 {
			run.All.P99 = 20e6
		}
		return run, err
	}}
	require.NoError(t, s.Run(t.Context(), r))
	c := newCurve(r)
	assert.Equal(t, 2000.0, c.loads[c.knee])
}

// TestWhatWasDueIsCounted: and not estimated from the load, which random arrivals differ from.
func TestWhatWasDueIsCounted(t *testing.T) {
	r := &results.Result{Version: results.Version, Experiment: "sweep"}
	s := &Sweep{Runs: 1, Rates: []uint64{100, 200, 300}, Measure: func(_ context.Context, rate uint64, _ *results.Cell) (*results.Run, error) {
		run := &results.Run{Trial: &loadgen.Trial{
			Seconds: 10, Ops: 9 * rate, OpsPerSecond: 0.9 * float64(rate), OfferedPerSecond: rate, All: loadgen.Latency{P99: 1e6}, Late: &loadgen.Late{}, Missed: &loadgen.Kind{},
		}}
		if rate == 300 {
			run.Missed.Count = rate / 2
		}
		return run, nil
	}}
	require.NoError(t, s.Run(t.Context(), r))
	c := newCurve(r)
	assert.Equal(t, 200.0, c.loads[c.knee], "fewer operations than usual were due")
	missed, late, refused := shortfall(c.runs[2], 300)
	assert.InDelta(t, 150.0/(9*300+150), missed, 1e-9)
	assert.Zero(t, late+refused)
}

// TestALoadThatWasInterruptedIsNoKnee: the store bore it for a moment only.
func TestALoadThatWasInterruptedIsNoKnee(t *testing.T) {
	var asked []uint64
	measure := queue(10_000, &asked)
	r := &results.Result{Version: results.Version, Experiment: "sweep"}
	s := &Sweep{Runs: 1, Rates: []uint64{1000, 2000, 5000}, Measure: func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
		run, err := measure(ctx, rate, cell)
		run.Interrupted = rate == 5000
		return run, err
	}}
	require.NoError(t, s.Run(t.Context(), r))
	c := newCurve(r)
	assert.Equal(t, []float64{1000, 2000}, c.loads)
	assert.Equal(t, 1, c.knee)
	assert.Len(t, r.Cells[2].Runs, 1, "it stays in the result")
}

// A disturbance at a low load does not end the search.
func TestANoisyLowLoadDoesNotHideTheKnee(t *testing.T) {
	var asked []uint64
	measure := queue(10_000, &asked)
	r := &results.Result{Version: results.Version, Experiment: "sweep"}
	s := &Sweep{Runs: 1, Measure: func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
		run, err := measure(ctx, rate, cell)
		if rate == 800 {
			run.All.P99 = 5e9
		}
		return run, err
	}}
	require.NoError(t, s.Run(t.Context(), r))
	c := newCurve(r)
	assert.InDelta(t, 9070, c.loads[c.knee], 200)
}

func TestSweepsWithoutAKnee(t *testing.T) {
	var asked []uint64
	for says, s := range map[string]*Sweep{
		"Every load was too much, from 300 operations/s on.": {Runs: 1, Rates: []uint64{300, 400}, Measure: queue(100, &asked)},
		"no load was too much":                               {Runs: 1, Rates: []uint64{300, 400}, Measure: queue(1e6, &asked)},
		"Nothing was measured":                               {Rates: []uint64{}},
	} {
		r := &results.Result{Version: results.Version, Experiment: "sweep"}
		require.NoError(t, s.Run(t.Context(), r))
		page := SweepPage(r)
		assert.Contains(t, page.Lead, says)
		assert.NotEmpty(t, page.HTML())
	}
}

func TestRatesAreParsed(t *testing.T) {
	rates, err := ParseRates("auto")
	require.NoError(t, err)
	assert.Nil(t, rates)
	rates, err = ParseRates("10, 200")
	require.NoError(t, err)
	assert.Equal(t, []uint64{10, 200}, rates)
	for _, text := range []string{"", "0", "fast", "1,,2", "-1"} {
		_, err := ParseRates(text)
		assert.Error(t, err, text)
	}
	assert.EqualValues(t, 12300, roundRate(12345))
	assert.EqualValues(t, 1, roundRate(0.3))
}

// The loads of a slow store are rounded, so that some are
// equal. A second run must not measure a closed loop, rate 0, as one of the loads.
func TestASweepOfASlowStoreOffersNoRateOfZero(t *testing.T) {
	closed := 0
	s := &Sweep{Runs: 2, Measure: func(_ context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
		trial := &loadgen.Trial{Seconds: 10, OpsPerSecond: float64(rate), Ops: 10 * rate, Missed: new(loadgen.Kind)}
		trial.All.P99 = 1000
		switch {
		case rate == 0:
			closed++
			trial.OpsPerSecond, trial.Ops = 12, 120
		case rate > 9:
			trial.All.P99 = 1_000_000
		}
		return &results.Run{Trial: trial}, nil
	}}
	r := new(results.Result)
	require.NoError(t, s.Run(t.Context(), r))
	assert.Equal(t, 1, closed, "closed loops")
	for _, c := range r.Cells {
		assert.NotZero(t, offered(c), "a cell of the load %q with %d runs", c.Param(paramOffered), len(c.Runs))
	}
}
