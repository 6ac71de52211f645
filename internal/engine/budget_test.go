package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// used sets how much of the budget is in use.
func (b *budget) use(part float64) { b.sealed.Store(int64(part * float64(b.limit))) }

func TestPressureGrowsWithWhatIsInUse(t *testing.T) {
	b := newBudget(1<<20, 1)
	for _, c := range []struct{ part, want float64 }{{0, 0}, {0.75, 0}, {0.875, 0.5}, {1, 1}, {1.25, 2}} {
		b.use(c.part)
		assert.InDelta(t, c.want, b.pressure(), 0.001, "%v of the budget", c.part)
	}
	many := newBudget(1<<20, 16) // three quarters are for active memtables
	for _, c := range []struct{ part, want float64 }{{0.75, 0}, {0.875, 0}, {0.9375, 0.5}, {1, 1}, {1.125, 2}} {
		many.use(c.part)
		assert.InDelta(t, c.want, many.pressure(), 0.001, "%v of the budget", c.part)
	}
	b.use(0)
	b.deltas.Store(2 * deltasSoft)
	assert.InDelta(t, 1, b.pressure(), 0.001)
	b.deltas.Store(100 * deltasSoft)
	assert.Less(t, b.pressure(), 2.0, "deltas slow writers but never stop them")
}

// The delay is graded: no step in pressure makes a step in the rate.
func TestRateFallsSmoothly(t *testing.T) {
	const drain = 100e6
	assert.InDelta(t, 4*drain, rateAt(0, drain), 1)
	last := rateAt(0, drain)
	for p := 0.01; p <= 2; p += 0.01 {
		rate := rateAt(p, drain)
		assert.Less(t, rate, last)
		assert.Greater(t, rate, 0.97*last, "at pressure %v", p)
		last = rate
	}
	assert.InDelta(t, 0.2*drain, last, 0.01*drain)
	assert.Less(t, rateAt(1, drain), drain, "at the whole budget less comes in than goes out")
}

func TestWithoutPressureNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<20, 1)
		begin := time.Now()
		for range 1000 {
			require.NoError(t, b.admit(t.Context(), 1<<20))
		}
		assert.Zero(t, time.Since(begin))
	})
}

func TestUnderPressureWritersKeepThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<20, 1)
		var paced []bool
		b.onPace = func(began bool, _ uint64) { paced = append(paced, began) }
		b.use(1)
		rate := rateAt(1, initialDrain)
		begin := time.Now()
		const writes, size = 500, 100 << 10
		for range writes {
			require.NoError(t, b.admit(t.Context(), size))
		}
		want := time.Duration(writes * size / rate * float64(time.Second))
		assert.InDelta(t, want.Seconds(), time.Since(begin).Seconds(), 0.02)
		b.Flushed(nil, b.limit)
		require.NoError(t, b.admit(t.Context(), 1))
		assert.Equal(t, []bool{true, false}, paced)
	})
}

// Pacing ends when the pressure does, although no other write comes.
func TestPacingEndsWithoutAnotherWrite(t *testing.T) {
	b := newBudget(1<<20, 1)
	var paced []bool
	b.onPace = func(began bool, _ uint64) { paced = append(paced, began) }
	b.use(1)
	require.NoError(t, b.admit(t.Context(), 1))
	b.Flushed(nil, 1)
	require.Equal(t, []bool{true}, paced, "the memtables take nearly the whole budget")
	b.Flushed(nil, b.limit/2)
	require.Equal(t, []bool{true, false}, paced)

	b.setDeltas(deltasSoft + 1)
	require.NoError(t, b.admit(t.Context(), 1))
	b.Flushed(nil, b.limit/4)
	require.Equal(t, []bool{true, false, true}, paced, "there are too many deltas")
	b.setDeltas(deltasSoft)
	require.Equal(t, []bool{true, false, true, false}, paced)
}

func TestFullMemtablesShedAfterPatienceAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<20, 1)
		b.use(1.3)
		begin := time.Now()
		assert.ErrorIs(t, b.admit(t.Context(), 1), kv.ErrOverloaded)
		assert.Equal(t, patience, time.Since(begin))
		assert.EqualValues(t, 1, b.sheds.Load())

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, b.admit(ctx, 1), context.DeadlineExceeded)

		done := make(chan error)
		go func() { done <- b.admit(context.Background(), 1) }()
		synctest.Wait()
		b.Flushed(nil, b.limit)
		assert.NoError(t, <-done)
	})
}

func TestDrainIsMeasured(t *testing.T) {
	b := newBudget(1<<20, 1)
	for range 30 {
		b.measured(200<<20, time.Second)
	}
	assert.InEpsilon(t, 200<<20, b.drain.Load(), 0.01)
	b.measured(10, time.Nanosecond)
	assert.InEpsilon(t, 200<<20, b.drain.Load(), 0.01, "a tiny flush says nothing")
}
