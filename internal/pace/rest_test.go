package pace

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// restsFor works for a time and returns how long the rest after it takes.
func restsFor(t *testing.T, ctx context.Context, work time.Duration) time.Duration {
	t.Helper()
	time.Sleep(work)
	begin := time.Now()
	require.NoError(t, Rest(ctx))
	return time.Since(begin)
}

func TestRestsAreAMultipleOfTheWorkBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := WithRests(t.Context(), func() int { return 3 })
		require.Equal(t, 300*time.Millisecond, restsFor(t, ctx, 100*time.Millisecond))
		require.Zero(t, restsFor(t, ctx, 3*time.Millisecond), "too short")
		require.Equal(t, 12*time.Millisecond, restsFor(t, ctx, time.Millisecond), "that of both")
		require.Zero(t, restsFor(t, t.Context(), time.Hour), "a context without rests")
	})
}

func TestARestEndsWhenTheWorkIsWantedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times atomic.Int64
		times.Store(3)
		ctx := WithRests(t.Context(), func() int { return int(times.Load()) })
		time.AfterFunc(1510*time.Millisecond, func() { times.Store(0) })
		require.Equal(t, 520*time.Millisecond, restsFor(t, ctx, time.Second), "seen at the next look")
		require.Zero(t, restsFor(t, ctx, time.Hour))
		times.Store(3)
		require.Equal(t, 30*time.Millisecond, restsFor(t, ctx, 10*time.Millisecond), "the hour before is not made up for")
	})
}

func TestARestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, cancel := context.WithCancel(t.Context())
		ctx := WithRests(base, func() int { return 1000 })
		time.Sleep(time.Second)
		begin := time.Now()
		time.AfterFunc(time.Second, cancel)
		require.Equal(t, context.Canceled, Rest(ctx))
		require.Equal(t, time.Second, time.Since(begin))
		require.Equal(t, context.Canceled, Rest(ctx))
	})
}
