package testsize

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Under the race detector rapid draws fewer cases; without it Reduced goes by -short
// alone.
func TestTheRaceDetectorReduces(t *testing.T) {
	require.Equal(t, raceEnabled || testing.Short(), Reduced())
	checks := flag.Lookup("rapid.checks")
	drawn := 0
	rapid.Check(t, func(*rapid.T) { drawn++ })
	require.Positive(t, drawn)
	if raceEnabled {
		require.NotEqual(t, checks.DefValue, checks.Value.String())
	}
}

func TestATestOfOneGoroutineIsLeftOutUnderTheRaceDetector(t *testing.T) {
	ran := false
	t.Run("test", func(t *testing.T) {
		OneGoroutine(t)
		ran = true
	})
	require.Equal(t, !raceEnabled, ran)
}
