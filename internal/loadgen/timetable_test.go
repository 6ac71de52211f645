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
	slow := NewTimetable(3, 5, nil)
	for _, want := range []int64{0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333} {
		due, ok := slow.take()
		assert.True(t, ok)
		assert.Equal(t, want, due)
	}
	_, ok := slow.take()
	assert.False(t, ok, "after the limit")
	year := uint64(365 * 24 * 3600)
	fast := NewTimetable(999_999_999, 0, nil)
	assert.EqualValues(t, year*1e9, fast.due(year*999_999_999), "no overflow within a year")
}

func TestTheRestOfATimetable(t *testing.T) {
	rest := func(table *Timetable, end int64) (dues []int64, count uint64) {
		table.rest(end, func(due int64, n uint64) { dues, count = append(dues, due), count+n })
		return dues, count
	}
	table := NewTimetable(10, 0, nil)
	_, _ = table.take()
	dues, count := rest(table, 4e8)
	assert.Equal(t, []int64{1e8, 2e8, 3e8}, dues, "of operation 0 a worker decides, and operation 4 is due at the end")
	assert.EqualValues(t, 3, count)
	_, count = rest(table, 1e8)
	assert.Zero(t, count)
	_, count = rest(NewTimetable(10, 2, nil), 1e9)
	assert.EqualValues(t, 2, count, "the limit")

	dues, count = rest(NewTimetable(1e9, 0, nil), 3600e9)
	assert.EqualValues(t, 3600e9, count)
	assert.LessOrEqual(t, len(dues), mostVisits)

	random := NewTimetable(10, 0, rand.New(rand.NewPCG(1, 2)))
	at, _ := random.take()
	dues, _ = rest(random, at+35e7)
	assert.Len(t, dues, 3)
	assert.Greater(t, dues[0], at)
}

// TestPoissonGapsAreExponential: the mean and the standard deviation of the gaps are equal,
// and e^-2 of them are longer than twice the mean.
func TestPoissonGapsAreExponential(t *testing.T) {
	const n = 100_000
	p := NewTimetable(1000, 0, rand.New(rand.NewPCG(1, 2)))
	last, sum, squares, long := int64(0), 0.0, 0.0, 0
	for range n {
		at, ok := p.take()
		require.True(t, ok)
		gap := float64(at-last) / 1e6
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
