package experiment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// TestASweepOfASlowStoreOffersNoRateOfZero: the loads of a slow store are rounded, so that some are
// equal. A second run must not measure a closed loop, rate 0, as one of the loads.
func TestASweepOfASlowStoreOffersNoRateOfZero(t *testing.T) {
	closed := 0
	s := &Sweep{Runs: 2, Measure: func(_ context.Context, rate uint64, cell *results.Cell) (*results.Run, error) {
		trial := &loadgen.Trial{Seconds: 10, OpsPerSecond: float64(rate), Ops: 10 * rate, Missed: new(loadgen.Kind)}
		trial.All.P99 = 1000
		switch {
		case rate == 0:
			closed++
			trial.OpsPerSecond, trial.Ops = 12, 120
		case rate > 9:
			trial.All.P99 = 1_000_000
		}
		return &results.Run{Trial: trial}, nil
	}}
	r := new(results.Result)
	require.NoError(t, s.Run(t.Context(), r))
	assert.Equal(t, 1, closed, "closed loops")
	for _, c := range r.Cells {
		assert.NotZero(t, offered(c), "a cell of the load %q with %d runs", c.Param(paramOffered), len(c.Runs))
	}
}
