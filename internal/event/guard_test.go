package event

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPanicIsToldAndGoesOn(t *testing.T) {
	var cause any
	var stack []byte
	l := &Listener{Panicked: func(c any, s []byte) { cause, stack = c, s }}
	bug := errors.New("a bug")
	require.PanicsWithValue(t, bug, func() {
		defer l.Guard()
		misbehave(bug)
	})
	assert.Equal(t, bug, cause)
	assert.Contains(t, string(stack), "event.misbehave", "the stack of the panic")
}

func misbehave(cause any) { panic(cause) }

func TestWithoutAPanicNothingIsTold(t *testing.T) {
	l := &Listener{Panicked: func(cause any, _ []byte) { t.Errorf("told of %v", cause) }}
	func() { defer l.Guard() }()
}

func TestAPanicGoesOnWithoutAListener(t *testing.T) {
	for _, l := range []*Listener{nil, {}} {
		require.PanicsWithValue(t, "a bug", func() {
			defer l.Guard()
			panic("a bug")
		})
	}
}

func TestGuardCostsNoMemory(t *testing.T) {
	l := &Listener{Panicked: func(any, []byte) {}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { defer l.Guard() }))
}

func TestAPanicOfAHelperReachesTheOneThatWaits(t *testing.T) {
	var h Helpers
	done := 0
	h.Go(func() { done++ })
	h.Wait()
	require.Equal(t, 1, done)
	for range 4 {
		h.Go(func() { misbehave("a bug") })
	}
	defer func() {
		text, ok := recover().(string)
		require.True(t, ok)
		assert.Contains(t, text, "a bug, in a helper")
		assert.Contains(t, text, "event.misbehave")
	}()
	h.Wait()
	t.Error("Wait returned")
}
