package workload

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

var errRefused = errors.New("overloaded, nothing was done")

// overloaded refuses puts until a time.
type overloaded struct {
	*storeTarget
	until   time.Time
	refused int
}

func (o *overloaded) Refused(err error) bool { return errors.Is(err, errRefused) }

func (o *overloaded) Put(ctx context.Context, key, value []byte) error {
	o.mu.Lock()
	refuses := time.Now().Before(o.until)
	if refuses {
		o.refused++
	}
	o.mu.Unlock()
	if refuses {
		return errRefused
	}
	return o.storeTarget.Put(ctx, key, value)
}

// TestRefusedOperationsOfAnOpenLoopAreNeverAnswered: half of the puts, which the latency of those
// that were accepted does not show.
func TestRefusedOperationsOfAnOpenLoopAreNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Mix, cfg.OpsPerSecond, cfg.Duration = Mix{Name: "puts", Put: 100}, 100, 10*time.Second
		s, err := Run(t.Context(), &overloaded{storeTarget: newStoreTarget(), until: time.Now().Add(5 * time.Second)}, cfg, Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 500, s.Ops, 2)
		assert.InDelta(t, 500, s.Put.Refused, 2)
		assert.Equal(t, s.Put.Refused, s.Refused)
		assert.Less(t, s.Put.Nanos.Max, time.Second.Nanoseconds())
		for _, due := range []*loadgen.Latency{s.Put.DueNanos, s.Trial.AllDue} {
			require.NotNil(t, due)
			assert.Less(t, due.P50, time.Second.Nanoseconds())
			assert.EqualValues(t, loadgen.Never, due.P90)
		}
	})
}

// TestALoadRepeatsWhatWasRefused: for a while. The store then has every key.
func TestALoadRepeatsWhatWasRefused(t *testing.T) {
	loads := map[string]func(context.Context, Target) error{
		"records": func(ctx context.Context, target Target) error {
			b, err := NewBench(target, Records{Count: 100, ValueBytes: 64, Seed: 1})
			require.NoError(t, err)
			if _, err = b.Load(ctx, 3, time.Second, loadgen.Observer{}); err != nil {
				return err
			}
			return b.Audit(ctx, 2, nothing)
		},
		"preload": func(ctx context.Context, target Target) error {
			cfg := testConfig()
			cfg.Keys = 100
			return Load(ctx, target, &cfg, 1, nothing)
		},
	}
	for name, load := range loads {
		for refuses, accepted := range map[time.Duration]bool{20 * time.Second: true, 2 * loadPatience: false} {
			t.Run(name+" "+refuses.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					target := &overloaded{storeTarget: newStoreTarget(), until: time.Now().Add(refuses)}
					err := load(t.Context(), target)
					assert.Positive(t, target.refused)
					assert.Less(t, target.refused, 2000, "it waits longer each time")
					if !accepted {
						require.ErrorIs(t, err, errRefused)
						return
					}
					require.NoError(t, err)
					assert.Len(t, target.values, 100)
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.Error(t, loads["records"](ctx, &overloaded{storeTarget: newStoreTarget(), until: began.Add(time.Hour)}))
		assert.Less(t, time.Since(began), loadPatience)
	})
}
