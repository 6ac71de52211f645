package workload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARunKnowsItsStall: the operations of the target take a millisecond each, except
// that once all of them stall.
func TestARunKnowsItsStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Duration = 5 * time.Second
		began := time.Now()
		slow := &delayed{mapTarget: newMapTarget(), delay: func() time.Duration {
			if at := time.Since(began); at > 2*time.Second && at < 2*time.Second+10*time.Millisecond {
				return 700 * time.Millisecond
			}
			return time.Millisecond
		}}
		s, err := Run(t.Context(), slow, cfg, Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 700*time.Millisecond, s.LongestStallNanos, float64(20*time.Millisecond))
	})
}

// TestAStallAtTheEndIsKnown: the time is up while all operations are stuck.
func TestAStallAtTheEndIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Duration = 5 * time.Second
		began := time.Now()
		slow := &delayed{mapTarget: newMapTarget(), delay: func() time.Duration {
			if time.Since(began) > 4900*time.Millisecond {
				return 7 * time.Second
			}
			return time.Millisecond
		}}
		s, err := Run(t.Context(), slow, cfg, Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 7*time.Second, s.LongestStallNanos, float64(20*time.Millisecond))
	})
}

type delayed struct {
	*mapTarget
	delay func() time.Duration
}

func (d *delayed) Put(ctx context.Context, key, value []byte) error {
	time.Sleep(d.delay())
	return d.mapTarget.Put(ctx, key, value)
}

func (d *delayed) Delete(ctx context.Context, key []byte) error {
	time.Sleep(d.delay())
	return d.mapTarget.Delete(ctx, key)
}

func (d *delayed) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	time.Sleep(d.delay())
	return d.mapTarget.Get(ctx, key, buf)
}
