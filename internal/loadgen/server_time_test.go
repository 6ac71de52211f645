package loadgen

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ofServer runs ten operations a second for three seconds after a warm-up of one, beside a
// server whose processor time read returns, of the time since the run began.
func ofServer(t *testing.T, read func(at time.Duration) (ServerTime, error)) (trial *Trial, seconds []*float64) {
	synctest.Test(t, func(t *testing.T) {
		clock, tally, began := NewClock(), NewTally(1, 0), time.Now()
		r := &Run{
			Clock: clock, Operations: []string{"get"}, Span: Span{Workers: 1, Warmup: time.Second, Duration: 3 * time.Second},
			Observer: Observer{Second: func(s Sample) { seconds = append(seconds, s.ServerCPU) }},
			Server: func() (ServerTime, error) {
				time.Sleep(time.Millisecond) // on the way
				return read(time.Since(began))
			},
			Workers: []Worker{{Tally: tally, Step: func(context.Context, int64) error {
				began := clock.Now()
				time.Sleep(100 * time.Millisecond)
				tally.Record(0, began, clock.Now(), 0)
				return nil
			}}},
		}
		var err error
		trial, err = r.Do(t.Context())
		require.NoError(t, err)
	})
	return trial, seconds
}

// TestAServerHasItsOwnShareOfItsProcessors: since the warm-up, and in each second.
func TestAServerHasItsOwnShareOfItsProcessors(t *testing.T) {
	trial, seconds := ofServer(t, func(at time.Duration) (ServerTime, error) {
		return ServerTime{Used: time.Minute + at/2, Processors: 4}, nil
	})
	require.Len(t, seconds, 3)
	for _, share := range seconds {
		assert.InDelta(t, 0.125, *share, 1e-6)
	}
	require.NotNil(t, trial.Server)
	assert.InDelta(t, 0.125, trial.Server.Share, 1e-6)
	assert.InDelta(t, 500_000.0/10, trial.Server.CPUMicrosPerOp, 5000)
	assert.Empty(t, trial.Server.Unknown)
}

// TestTheTimeOfAServerIsNotKnownAfterAnError: nor if another process answers than before.
func TestTheTimeOfAServerIsNotKnownAfterAnError(t *testing.T) {
	calls := 0
	trial, seconds := ofServer(t, func(at time.Duration) (ServerTime, error) {
		if calls++; calls > 3 { // before and after the warm-up, and in the first second
			return ServerTime{}, errors.New("gone")
		}
		return ServerTime{Used: at, Processors: 2}, nil
	})
	assert.Equal(t, 4, calls, "it is not asked again")
	assert.NotNil(t, seconds[0])
	assert.Nil(t, seconds[1])
	assert.Equal(t, &ServerUse{Unknown: "gone"}, trial.Server)

	trial, seconds = ofServer(t, func(at time.Duration) (ServerTime, error) {
		if at > 3500*time.Millisecond { // in the last second
			at = 0
		}
		return ServerTime{Used: at, Processors: 2}, nil
	})
	assert.Nil(t, seconds[2])
	assert.Equal(t, &ServerUse{Unknown: "the server was restarted during the measurement"}, trial.Server)

	assert.Nil(t, new(serverWatch).use(time.Second, 1), "it was not asked for")
}
