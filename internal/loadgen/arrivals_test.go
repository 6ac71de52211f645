package loadgen

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArrivalsHaveTheirRate: also if a second is no multiple of it in nanoseconds.
func TestArrivalsHaveTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Arrivals{
			CalmPerSecond: 3, OverPerSecond: 700_000, Calm: 10 * time.Second, Over: 100 * time.Millisecond, Rest: 10 * time.Second,
			MaxCallers: 4, Patience: time.Second,
			NewCaller: func(int) func(context.Context) error { return func(context.Context) error { return nil } },
			Judge:     func(error) Fate { return Failed },
		}
		o, err := a.Do(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 30, o.Calm.Due, 1)
		assert.InDelta(t, 70_000, o.Over.Due, 2)
		assert.InDelta(t, 30, o.Rest.Due, 1)
	})
}
