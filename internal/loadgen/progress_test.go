package loadgen

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgressEstimatesTheRest(t *testing.T) {
	for _, test := range []struct {
		p    Progress
		left time.Duration
		ok   bool
	}{
		{Progress{Done: 25, Total: 100, Elapsed: 2 * time.Second}, 6 * time.Second, true},
		{Progress{Done: 100, Total: 100, Elapsed: time.Second}, 0, true},
		{Progress{Done: 1, Total: 1 << 62, Elapsed: time.Nanosecond}, 1<<62 - 1, true},
		{Progress{Total: 100, Elapsed: time.Second}, 0, false},
		{Progress{Elapsed: time.Second}, 0, false},
		{Progress{Done: 3, Total: 2, Elapsed: time.Second}, 0, false},
	} {
		left, ok := test.p.Left()
		assert.Equal(t, test.ok, ok, test.p)
		assert.InDelta(t, float64(test.left), float64(left), 1e10*float64(test.p.Elapsed), test.p)
	}
}

// TestForEachIsCountedFromItsBeginning: not from when its progress was first told.
func TestForEachIsCountedFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Progress
		counted := Counted("loading", "keys", func(p Progress) { told = append(told, p) })
		time.Sleep(time.Minute) // before the work begins
		require.NoError(t, ForEach(t.Context(), 1, 3, counted, func(context.Context, int, uint64) error {
			time.Sleep(750 * time.Millisecond)
			return nil
		}))
		assert.Equal(t, []Progress{
			{"loading", "keys", 0, 3, 0}, {"loading", "keys", 1, 3, time.Second}, {"loading", "keys", 2, 3, 2 * time.Second},
			{"loading", "keys", 3, 3, 2250 * time.Millisecond},
		}, told)
	})
}

func TestWatchTellsThatWorkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Progress
		err := Watch("merging", func(p Progress) { told = append(told, p) }, func() error {
			time.Sleep(2500 * time.Millisecond)
			return assert.AnError
		})
		require.ErrorIs(t, err, assert.AnError)
		assert.Equal(t, []Progress{{What: "merging", Elapsed: time.Second}, {What: "merging", Elapsed: 2 * time.Second}}, told)
	})
}

// TestAWarmUpIsTold: it may be long, and is not measured.
func TestAWarmUpIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Progress
		seconds := 0
		r := &Run{
			Clock: NewClock(), Operations: []string{"get"},
			Span:     Span{Workers: 1, Warmup: 2500 * time.Millisecond, Duration: time.Second, Interval: time.Second},
			Observer: Observer{WarmUp: func(p Progress) { told = append(told, p) }, Second: func(Sample) { seconds++ }},
			Workers: []Worker{{Tally: NewTally(1, 0), Step: func(context.Context, int64) error {
				time.Sleep(time.Millisecond)
				return nil
			}}},
		}
		_, err := r.Do(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []Progress{{"warming up", "ms", 1000, 2500, time.Second}, {"warming up", "ms", 2000, 2500, 2 * time.Second}}, told)
		assert.Equal(t, 1, seconds)
	})
}
