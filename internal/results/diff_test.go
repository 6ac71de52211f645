package results

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

func TestStudentsQuantiles(t *testing.T) {
	for _, v := range []struct{ p, freedom, want float64 }{ // of printed tables
		{0.975, 1, 12.706}, {0.975, 2, 4.303}, {0.975, 4, 2.776}, {0.975, 10, 2.228}, {0.975, 30, 2.042}, {0.975, 1e6, 1.960},
		{0.995, 4, 4.604}, {0.9995, 2, 31.599}, {0.9, 5, 1.476},
	} {
		assert.InEpsilon(t, v.want, studentQuantile(v.p, v.freedom), 0.0005, "%v", v)
	}
}

// noisy returns a result of cells with runs whose rates spread by 2 %, times factor.
func noisy(seed uint64, cells, runs int, factor float64) *Result {
	rng := rand.New(rand.NewPCG(seed, 0))
	r := &Result{Version: Version}
	for n := range cells {
		c := &Cell{Params: []Param{{"threads", string(rune('a' + n))}}}
		for range runs {
			rate := 100e3 * factor * math.Exp(0.02*rng.NormFloat64())
			latency := func() loadgen.Latency { return loadgen.Latency{P50: int64(4e9 / rate), P99: int64(40e9 / rate)} }
			c.Runs = append(c.Runs, &Run{Trial: &loadgen.Trial{OpsPerSecond: rate, CPUMicrosPerOp: 2e5 / rate, Operations: []loadgen.Operation{
				{Name: "get", Kind: loadgen.Kind{Count: 1, Nanos: latency()}},
			}}})
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func TestLessTimeIsBetter(t *testing.T) {
	c, err := Compare(noisy(1, 1, 5, 1), noisy(2, 1, 5, 2), DefaultLeast)
	require.NoError(t, err)
	all := c.Differences
	require.Len(t, all, 4)
	for _, d := range all {
		assert.Equal(t, Better, d.Verdict, d.Metric)
	}
	assert.InDelta(t, 2, all[0].Ratio, 0.1)
	assert.InDelta(t, 0.5, all[2].Ratio, 0.05)
}

func TestOnlyCommonCellsAreCompared(t *testing.T) {
	a, b := noisy(1, 3, 3, 1), noisy(2, 1, 3, 1)
	c, err := Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Apart{{"threads b", "only the first has it"}, {"threads c", "only the first has it"}}, c.Apart)
	c, err = Compare(b, a, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, "only the second has it", c.Apart[1].Why)

	b.Cells[0].Params[0].Name = "other"
	_, err = Compare(a, b, DefaultLeast)
	require.ErrorContains(t, err, "nothing can be compared: threads a: only the first has it; threads b: only the first has it; threads c: only the first has it; and 1 more")
	_, err = Compare(&Result{}, &Result{}, DefaultLeast)
	require.ErrorContains(t, err, "neither has a measured combination")
	b.Experiment = "reads"
	_, err = Compare(a, b, DefaultLeast)
	require.ErrorContains(t, err, "the second of kvbench reads")
}

// TestOtherWorkloadsAreNotCompared: of cells with the same parameters, those whose workloads
// differ are named with the settings. A result that was read has maps, one that was measured
// has structs; a field that one of them lacks is zero.
func TestOtherWorkloadsAreNotCompared(t *testing.T) {
	type settings struct {
		Keys  uint64 `json:"keys"`
		Loop  string `json:"loop"`
		Seed  uint64 `json:"seed"`
		Other any    `json:"other"`
	}
	a, b := noisy(1, 2, 3, 1), noisy(2, 2, 3, 1)
	for i := range a.Cells {
		a.Cells[i].Workload = settings{Keys: 1000, Loop: "closed", Seed: 1, Other: []int{1}}
		b.Cells[i].Workload = map[string]any{"keys": 1000.0, "loop": "closed", "seed": 2.0, "theta": 0.0}
	}
	c, err := Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Empty(t, c.Apart)

	b.Cells[1].Workload = map[string]any{"keys": 10000000.0, "seed": 2.0, "theta": 0.99, "reused": true}
	c, err = Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Apart{{"threads b", "the workloads differ: keys 1000 and 10000000, loop closed and none, reused false and true, theta 0 and 0.99"}}, c.Apart)
	for _, d := range c.Differences {
		assert.Equal(t, "threads a", d.Cell)
	}

	b.Cells[0].Workload = b.Cells[1].Workload
	_, err = Compare(a, b, DefaultLeast)
	require.ErrorContains(t, err, "the workloads differ: keys 1000 and 10000000")
}

func TestSettingsOfStoresMayDiffer(t *testing.T) {
	a, b := noisy(1, 2, 3, 1), noisy(2, 2, 3, 1)
	for i := range a.Cells {
		a.Cells[i].Params = append(a.Cells[i].Params, Param{paramServer, "one:7070"})
		b.Cells[i].Params = append(b.Cells[i].Params, Param{paramServer, "two:7070"})
		a.Cells[i].Target = map[string]any{"kind": "server", "address": "one:7070", "activity": map[string]any{}}
		b.Cells[i].Target = map[string]any{"kind": "server", "address": "two:7070", "batchOps": 16.0}
	}
	c, err := Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Empty(t, c.Apart)
	assert.Equal(t, []Setting{{"batchOps", "0", "16"}, {"server", "one:7070", "two:7070"}}, c.Settings)
}

// TestEachCellIsComparedOnce: two servers on one side and on the other.
func TestEachCellIsComparedOnce(t *testing.T) {
	of := func(seed uint64, servers ...string) *Result {
		r := noisy(seed, len(servers), 3, 1)
		for i, server := range servers {
			r.Cells[i].Params = []Param{{"mix", "m"}, {paramServer, server}}
		}
		return r
	}
	c, err := Compare(of(1, "one", "two"), of(2, "two", "three", "four"), DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Setting{{"server", "one", "three"}}, c.Settings, "two is compared with two")
	assert.Equal(t, []Apart{{"mix m, server four", "only the second has it"}}, c.Apart)
	c, err = Compare(of(1, "one", "two"), of(2, "three"), DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Apart{{"mix m, server two", "only the first has it"}}, c.Apart)
}

func TestRunsThatFailedAreNotCompared(t *testing.T) {
	a, b := noisy(1, 4, 3, 1), noisy(2, 4, 3, 1)
	b.Cells[0].Runs[1].Error = "wrong answer"
	a.Cells[2].Runs = nil
	a.Cells[3].Runs[2].Interrupted = true
	c, err := Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Apart{
		{"threads a", "a run of the second ended with an error: wrong answer"},
		{"threads c", "the first has no run of it"},
		{"threads d", "a run of the first was interrupted"},
	}, c.Apart)
}

// TestARunThatDidNothingCounts: a rate of 0 has no logarithm, and is no reason to leave out the
// run.
func TestARunThatDidNothingCounts(t *testing.T) {
	idle := func(r *Result, runs ...int) *Result {
		for _, n := range runs {
			r.Cells[0].Runs[n].OpsPerSecond = 0
			r.Cells[0].Runs[n].Trial.Operations = nil
		}
		return r
	}
	rate := func(a, b *Result) Difference {
		c, err := Compare(a, b, DefaultLeast)
		require.NoError(t, err)
		require.True(t, c.Differences[0].Main)
		return c.Differences[0]
	}
	d := rate(noisy(1, 1, 3, 1), idle(noisy(2, 1, 3, 1), 1))
	assert.Equal(t, Worse, d.Verdict)
	assert.Equal(t, "no operation in 0 of 3 before, in 1 of 3 after", d.Idle)
	assert.InDelta(t, 1, d.Ratio, 0.1, "of the other runs")

	d = rate(idle(noisy(1, 1, 3, 1), 0, 1, 2), noisy(2, 1, 3, 1))
	assert.Equal(t, Better, d.Verdict)
	assert.Zero(t, d.A)
	assert.True(t, math.IsInf(d.Ratio, 1))

	d = rate(noisy(2, 1, 3, 1), idle(noisy(1, 1, 3, 1), 0, 1, 2))
	assert.Equal(t, Worse, d.Verdict)
	assert.Zero(t, d.Ratio)

	d = rate(idle(noisy(1, 1, 3, 1), 0, 1, 2), idle(noisy(2, 1, 3, 1), 0, 1, 2))
	assert.Equal(t, Same, d.Verdict)

	d = rate(noisy(2, 1, 2, 1), idle(noisy(1, 1, 2, 1), 0))
	assert.Equal(t, Unknown, d.Verdict, "two runs are too few, whatever they did")

	d = rate(idle(noisy(2, 1, 3, 1), 0), idle(noisy(1, 1, 3, 1), 0))
	assert.Equal(t, Unknown, d.Verdict, "of two runs that did something nothing can be told")
}

// TestAFigureThatOneSideLacksIsNotCompared: not measured is not 0.
func TestAFigureThatOneSideLacksIsNotCompared(t *testing.T) {
	a, b := noisy(1, 1, 3, 1), noisy(2, 1, 3, 1)
	for _, r := range b.Cells[0].Runs {
		r.CPUMicrosPerOp = 0
	}
	a.Cells[0].Runs[0].Trial.Operations = nil // the others have gets
	c, err := Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	var figures []string
	for _, d := range c.Differences {
		figures = append(figures, d.Metric)
	}
	assert.Equal(t, []string{"operations/s", "get p50", "get p99"}, figures)
	assert.Equal(t, []Apart{{"threads a, " + MetricCPU, "only the first has it"}}, c.Apart)

	put := loadgen.Operation{Name: "put", Kind: loadgen.Kind{Count: 90, Nanos: loadgen.Latency{P50: 10, P99: 20}}}
	for _, r := range a.Cells[0].Runs {
		r.Trial.Operations = append(r.Trial.Operations, put)
	}
	c, err = Compare(b, a, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, []Apart{
		{"threads a, " + MetricCPU, "only the second has it"}, {"threads a, put p50", "only the second has it"}, {"threads a, put p99", "only the second has it"},
	}, c.Apart)

	put.Refused, put.DueNanos = 10, &loadgen.Latency{P50: 11, P99: loadgen.Never}
	for _, r := range b.Cells[0].Runs {
		r.Trial.Operations = append(r.Trial.Operations, put)
	}
	c, err = Compare(a, b, DefaultLeast)
	require.NoError(t, err)
	assert.Equal(t, Apart{"threads a, put p99", "it is endless in 0 of 3 runs of the first and 3 of 3 of the second, because operations were refused"}, c.Apart[len(c.Apart)-1])
	i := slices.IndexFunc(c.Differences, func(d Difference) bool { return d.Metric == "put p50" })
	require.GreaterOrEqual(t, i, 0)
	assert.InDelta(t, 11, c.Differences[i].B, 0.001, "of all that was due")
}
