package loadgen

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheBestRoundIsConfirmedByLaterOnes(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		rounds []time.Duration // of each, and the last one again and again
		best   time.Duration
		steps  int
	}{
		"a clock that stands still":    {[]time.Duration{0}, 0, 2},
		"all alike":                    {[]time.Duration{2 * ms}, ms, 2 * 6},
		"interrupted":                  {[]time.Duration{8 * ms, 4 * ms, 8 * ms, 8 * ms, 8 * ms, 8 * ms, 2 * ms, 8 * ms}, ms, 2 * 12},
		"better each time":             {falling(2 * costRounds), (costRounds + 1) * ms / 20, 2 * costRounds},
		"long rounds, within a second": {[]time.Duration{600 * ms, 500 * ms, 400 * ms}, 250 * ms, 2 * 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			steps := 0
			best, err := BestRound(2, func() error {
				round := min(steps/2, len(c.rounds)-1)
				steps++
				time.Sleep(c.rounds[round] / 2)
				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, c.best, best, name)
			assert.Equal(t, c.steps, steps, name)
		})
	}
	broken := errors.New("broken")
	_, err := BestRound(2, func() error { return broken })
	require.ErrorIs(t, err, broken)
}

// falling returns the times of n rounds, of which each is 100 µs shorter.
func falling(n int) (rounds []time.Duration) {
	for i := range n {
		rounds = append(rounds, time.Duration(n-i)*100*time.Microsecond)
	}
	return rounds
}
