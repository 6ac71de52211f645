package results

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shape is how a simulated comparison looks: its rates, the runs of each side, and the
// standard deviation of each side's logarithms.
type shape struct {
	rates, others int
	runsA, runsB  int
	noiseA        float64
	noiseB        float64
}

// rows draws a comparison. shift moves the second side of the first rates, as many as moved.
func (s shape) rows(rng *rand.Rand, shift float64, moved int) []*row {
	var rows []*row
	for n := range s.rates + s.others {
		draw := func(runs int, noise, shift float64) (v samples) {
			for range runs {
				v.logs = append(v.logs, shift+noise*rng.NormFloat64())
			}
			return v
		}
		r := &row{Difference: Difference{Main: n < s.rates}, a: draw(s.runsA, s.noiseA, 0)}
		if n < moved {
			r.b = draw(s.runsB, s.noiseB, math.Log1p(shift))
		} else {
			r.b = draw(s.runsB, s.noiseB, 0)
		}
		r.welch = newWelch(r.a.logs, r.b.logs)
		rows = append(rows, r)
	}
	return rows
}

// atMost returns the upper end of the exact (Clopper-Pearson) interval of a share, of which
// the confidence is 99 %: hits of n were seen.
func atMost(hits, n int) float64 {
	low, high := float64(hits)/float64(n), 1.0
	for high-low > 1e-9 {
		// The probability of at most hits is that of the beta distribution above share.
		if share := (low + high) / 2; 1-incompleteBeta(share, float64(hits+1), float64(n-hits)) > 0.01 {
			low = share
		} else {
			high = share
		}
	}
	return high
}

// TestFalseAlarmsAreRare: of comparisons of equal programs, the share in which any figure gets
// a verdict is not above FalseAlarms, with 99 % confidence. The least difference is as small as
// may be, so that it helps little.
func TestFalseAlarmsAreRare(t *testing.T) {
	assert.InDelta(t, 0.0450, atMost(0, 100), 0.0001)
	for _, c := range []struct {
		shape
		comparisons int
	}{
		{shape{1, 0, 5, 5, 0.03, 0.03}, 1000},
		{shape{20, 0, 5, 5, 0.03, 0.03}, 300},
		{shape{20, 0, 3, 3, 0.03, 0.03}, 300},
		{shape{20, 0, 3, 10, 0.09, 0.03}, 300}, // the sides differ
		{shape{20, 0, 5, 5, 0.01, 0.10}, 1000},
		{shape{5, 15, 8, 8, 0.03, 0.03}, 300},
	} {
		s, comparisons := c.shape, c.comparisons
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(17, 0))
			alarms := 0
			for range comparisons {
				rates, others := verdicts(s.rows(rng, 0, 0))
				if rates[Same]+others[Same] < s.rates+s.others {
					alarms++
				}
			}
			assert.LessOrEqual(t, atMost(alarms, comparisons), FalseAlarms, "%d of %d comparisons", alarms, comparisons)
		})
	}
}

// verdicts decides the rows of a comparison, and counts the verdicts.
func verdicts(rows []*row) (rates, others map[Verdict]int) {
	rates, others = map[Verdict]int{}, map[Verdict]int{}
	decide(rows, LeastOfLeast)
	for _, r := range rows {
		if r.Main {
			rates[r.Verdict]++
		} else {
			others[r.Verdict]++
		}
	}
	return rates, others
}

// TestATenthIsFound: with a spread of 3 %, these runs of each side find a rate that is 10 %
// lower, in at least 90 % of comparisons with 99 % confidence. kvbench diff --help names them.
func TestATenthIsFound(t *testing.T) {
	const comparisons = 300
	for _, s := range []struct{ rates, runs, moved int }{{1, 5, 1}, {4, 6, 1}, {20, 9, 1}, {20, 7, 20}} {
		rng := rand.New(rand.NewPCG(17, 1))
		missed := 0
		for range comparisons {
			rates, _ := verdicts(shape{s.rates, 0, s.runs, s.runs, 0.03, 0.03}.rows(rng, -0.1, s.moved))
			if rates[Worse] < s.moved {
				missed++
			}
		}
		assert.LessOrEqual(t, atMost(missed, comparisons), 0.1, "%+v: %d of %d comparisons", s, missed, comparisons)
	}
}

// TestASmallDifferenceDoesNotCount: however certain it is.
func TestASmallDifferenceDoesNotCount(t *testing.T) {
	certain := func(noise, shift float64) *row {
		r := &row{Difference: Difference{Main: true}}
		for n := range 100 {
			v := noise * float64(1-n%2*2)
			r.a.logs, r.b.logs = append(r.a.logs, v), append(r.b.logs, v+math.Log1p(shift))
		}
		r.welch = newWelch(r.a.logs, r.b.logs)
		require.Less(t, r.welch.p(), 1e-6)
		return r
	}
	for _, c := range []struct {
		noise, shift, least float64
		want                Verdict
	}{
		{0.001, 0.029, 0.03, Same},
		{0.001, 0.031, 0.03, Better},
		{0.001, -0.031, 0.03, Worse},
		{0.001, 0.029, 0.02, Better},
		{0.10, 0.09, 0.03, Same}, // within the spread of the runs
		{0.10, 0.12, 0.03, Better},
	} {
		r := certain(c.noise, c.shift)
		decide([]*row{r}, c.least)
		assert.Equal(t, c.want, r.Verdict, "%+v", c)
	}
}

// TestTheIntervalAgreesWithTheVerdict: it excludes no difference exactly where Holm's
// procedure finds one.
func TestTheIntervalAgreesWithTheVerdict(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 2))
	seen := map[Verdict]int{}
	for range 20 {
		rows := shape{5, 5, 6, 6, 0.03, 0.03}.rows(rng, -0.12, 3)
		decide(rows, LeastOfLeast)
		for _, r := range rows {
			d := r.finish()
			seen[d.Verdict]++
			assert.Equal(t, r.welch.p() <= r.level, d.High < 1 || d.Low > 1)
			if d.Verdict != Same {
				assert.True(t, d.High < 1 || d.Low > 1)
			}
		}
	}
	assert.Positive(t, seen[Worse])
	assert.Positive(t, seen[Same])
}

// TestTwoRunsAreTooFew: for any verdict, on either side.
func TestTwoRunsAreTooFew(t *testing.T) {
	for _, runs := range [][2]int{{1, 1}, {1, 5}, {5, 2}} {
		c, err := Compare(noisy(1, 2, runs[0], 1), noisy(2, 2, runs[1], 0.1), DefaultLeast)
		require.NoError(t, err)
		require.Len(t, c.Differences, 8)
		for _, d := range c.Differences {
			assert.Equal(t, Unknown, d.Verdict)
			assert.Equal(t, d.Ratio, d.Low)
			assert.Equal(t, d.Ratio, d.High)
		}
	}
	for _, least := range []float64{0, 1, math.NaN()} {
		_, err := Compare(noisy(1, 1, 3, 1), noisy(2, 1, 3, 1), least)
		require.ErrorContains(t, err, "want 0.01 to less than 1")
	}
}
