package workload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLongestTimeWithoutAnEndIsTheStall(t *testing.T) {
	s := &stallWatch{lastEnd: 100}
	for _, look := range []struct{ now, lastEnd, want int64 }{
		{105, 0, 5},     // no operation has ended yet
		{110, 108, 5},   // an operation has ended
		{150, 108, 42},  // and then none
		{155, 154, 42},  // again
		{160, 152, 42},  // lastEnd never goes back
		{200, 154, 46},  // a longer stall
		{1000, 999, 46}, // which ended between two samples
	} {
		s.look(look.now, look.lastEnd)
		assert.Equal(t, time.Duration(look.want), s.longest, "at %d", look.now)
	}
}

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
		assert.InDelta(t, 700*time.Millisecond, s.LongestStallNanos, float64(2*stallResolution+10*time.Millisecond))
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
