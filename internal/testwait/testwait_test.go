package testwait

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeadlineLeavesTimeToReport(t *testing.T) {
	start := time.Now()
	for timeout, want := range map[time.Duration]time.Duration{
		0:                time.Hour - maxReport,
		15 * time.Minute: 15*time.Minute - maxReport,
		10 * time.Second: 9 * time.Second,
	} {
		assert.Equal(t, start.Add(want), deadline(start, timeout), timeout)
	}
}

func TestDeadlineIsThatOfTheTestBinary(t *testing.T) {
	end, limited := t.Deadline()
	if !limited {
		assert.Equal(t, started.Add(unlimited-maxReport), Deadline())
		return
	}
	assert.False(t, Deadline().After(end))
	assert.InDelta(t, float64(maxReport), float64(end.Sub(Deadline())), float64(maxReport))
	contextEnd, ok := Context(t).Deadline()
	require.True(t, ok)
	assert.Equal(t, Deadline(), contextEnd)
}

// failures records what a test reports, instead of failing.
type failures struct {
	testing.TB
	said string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func (f *failures) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestDoublingReturnsAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []time.Duration
		Doubling(t, 5, func(d time.Duration) bool { tried = append(tried, d); return d > 10 })
		assert.Equal(t, []time.Duration{5, 10, 20}, tried)
		time.Sleep(time.Until(Deadline()) + time.Second)
		assert.PanicsWithValue(t, "not even with a timeout of 5ns when the test binary has to end", func() {
			Doubling(&failures{}, 5, func(time.Duration) bool { return false })
		})
	})
}

func TestUntilReturnsAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		Until(t, func() bool { looks++; return looks == 3 })
		assert.Equal(t, 3, looks)
		time.Sleep(time.Until(Deadline()) + time.Second)
		assert.PanicsWithValue(t, "still not true when the test binary has to end: [the moon]", func() {
			Until(&failures{}, func() bool { return false }, "the moon")
		})
	})
}

func TestReceiveReturnsAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int, 1)
		c <- 7
		value, ok := Receive(t, c)
		assert.True(t, ok)
		assert.Equal(t, 7, value)
		f := &failures{}
		_, ok = Receive(f, c, "a number")
		assert.False(t, ok)
		assert.Equal(t, "nothing came before the test binary has to end: [a number]", f.said)
		close(c)
		_, ok = Receive(t, c)
		assert.True(t, ok)
		assert.Equal(t, time.Millisecond, Left(), "over")
	})
}

// A context for cleanups lives on after the test's own has ended.
func TestContextLivesInCleanups(t *testing.T) {
	var in context.Context
	t.Run("test", func(t *testing.T) {
		in = Context(t)
		t.Cleanup(func() {
			require.Error(t, t.Context().Err())
			require.NoError(t, in.Err())
		})
	})
	require.Error(t, in.Err())
}
