package results

import (
	"math"
	"math/rand/v2"
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
			run := &Run{Trial: &loadgen.Trial{OpsPerSecond: rate, CPUMicrosPerOp: 2e5 / rate, Operations: []loadgen.Operation{
				{Name: "get", Kind: loadgen.Kind{Count: 1, Nanos: latency()}},
			}}}
			for range 20 {
				run.Series = append(run.Series, Second{OpsPerSecond: rate * math.Exp(0.05*rng.NormFloat64()), Operations: run.Trial.Operations})
			}
			c.Runs = append(c.Runs, run)
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func mainVerdicts(t *testing.T, a, b *Result) map[Verdict]int {
	t.Helper()
	all, err := Compare(a, b)
	require.NoError(t, err)
	verdicts := map[Verdict]int{}
	for _, d := range all {
		assert.LessOrEqual(t, d.Low, d.Ratio)
		assert.GreaterOrEqual(t, d.High, d.Ratio)
		if d.Main {
			verdicts[d.Verdict]++
		}
	}
	return verdicts
}

// TestEqualResultsDifferNowhere: of a hundred pairs of results that come from the same
// distribution, about five may differ in any cell; the seeds are fixed.
func TestEqualResultsDifferNowhere(t *testing.T) {
	for _, shape := range []struct{ cells, runs int }{{1, 5}, {8, 3}, {1, 1}, {4, 2}} {
		different := 0
		for seed := range uint64(100) {
			if v := mainVerdicts(t, noisy(2*seed, shape.cells, shape.runs, 1), noisy(2*seed+1, shape.cells, shape.runs, 1)); v[Same] < shape.cells {
				different++
			}
		}
		assert.LessOrEqual(t, different, 8, "%v", shape)
	}
}

func TestATenthIsFound(t *testing.T) {
	for _, shape := range []struct{ cells, runs int }{{1, 5}, {4, 5}, {1, 1}, {1, 2}} {
		found := 0
		for seed := range uint64(100) {
			if v := mainVerdicts(t, noisy(2*seed, shape.cells, shape.runs, 1), noisy(2*seed+1, shape.cells, shape.runs, 0.89)); v[Worse] == shape.cells {
				found++
			}
		}
		assert.GreaterOrEqual(t, found, 80, "%v", shape)
	}
	assert.Equal(t, map[Verdict]int{Better: 2}, mainVerdicts(t, noisy(1, 2, 5, 1), noisy(2, 2, 5, 1.3)))
}

func TestLessTimeIsBetter(t *testing.T) {
	all, err := Compare(noisy(1, 1, 5, 1), noisy(2, 1, 5, 2))
	require.NoError(t, err)
	require.Len(t, all, 4)
	for _, d := range all {
		assert.Equal(t, Better, d.Verdict, d.Metric)
	}
	assert.InDelta(t, 2, all[0].Ratio, 0.1)
	assert.InDelta(t, 0.5, all[2].Ratio, 0.05)
}

func TestOnlyCommonCellsAreCompared(t *testing.T) {
	a, b := noisy(1, 3, 3, 1), noisy(2, 1, 3, 1)
	assert.Len(t, mainVerdicts(t, a, b), 1)
	b.Cells[0].Params[0].Name = "other"
	_, err := Compare(a, b)
	require.ErrorContains(t, err, "no combination of parameters in common")
}
