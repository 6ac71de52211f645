package loadgen

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimetableHasNoDrift(t *testing.T) {
	p := pace{start: 5, rate: 3}
	assert.EqualValues(t, 5, p.due(0))
	assert.EqualValues(t, 5+333_333_333, p.due(1))
	assert.EqualValues(t, 5+666_666_666, p.due(2))
	assert.EqualValues(t, 5+1_000_000_000, p.due(3))
	year := uint64(365 * 24 * 3600)
	fast := pace{rate: 999_999_999}
	assert.EqualValues(t, year*1e9, fast.due(year*999_999_999), "no overflow within a year")
}

// TestPoissonGapsAreExponential: the mean and the standard deviation of the gaps are equal,
// and e^-2 of them are longer than twice the mean.
func TestPoissonGapsAreExponential(t *testing.T) {
	const n = 100_000
	p := pace{start: 7, rate: 1000, every: 4, random: rand.New(rand.NewPCG(1, 2))}
	last, sum, squares, long := int64(7), 0.0, 0.0, 0
	for range n {
		at := p.advance()
		gap := float64(at-last) / 4e6
		last = at
		require.GreaterOrEqual(t, gap, 0.0)
		sum += gap
		squares += gap * gap
		if gap > 2 {
			long++
		}
	}
	mean := sum / n
	assert.InDelta(t, 1, mean, 0.01)
	assert.InDelta(t, 1, math.Sqrt(squares/n-mean*mean), 0.02)
	assert.InDelta(t, math.Exp(-2), float64(long)/n, 0.005)
}

func TestProcessorTimeOfOthers(t *testing.T) {
	before := parseProcessorTime("cpu  100 0 100 1000 50 0 0 0 0 0\ncpu0 1 2 3\n")
	after := parseProcessorTime("cpu  150 0 130 1100 60 0 10 20 7 0\n")
	mine, others := after.since(&before, 660*time.Millisecond) // of 220 ticks, 110 idle
	require.NotNil(t, mine)
	assert.InDelta(t, 0.3, *mine, 1e-9)
	assert.InDelta(t, 0.2, *others, 1e-9)
	for _, text := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8"} {
		unknown := parseProcessorTime(text)
		mine, _ = after.since(&unknown, 0)
		assert.Nil(t, mine, text)
	}
}
