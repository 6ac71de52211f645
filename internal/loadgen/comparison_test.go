package loadgen

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTrialsTakeTurnsAndTheMedianCounts(t *testing.T) {
	var order []bool
	rates := []float64{100, 50, 90, 100, 200, 20}
	c, err := Compare(t.Context(), 3, func(_ context.Context, with bool) (float64, error) {
		order = append(order, with)
		return rates[len(order)-1], nil
	})
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true, true, false, false, true}, order)
	assert.Equal(t, []float64{0.5, 0.9, 0.1}, c.Ratios)
	assert.Equal(t, 0.5, c.MedianRatio)
	assert.Equal(t, 2.5, Median([]float64{4, 1, 3, 2}))

	_, err = Compare(t.Context(), 0, nil)
	assert.EqualError(t, err, "0 rounds; want at least 1")
	_, err = Compare(t.Context(), 1, func(context.Context, bool) (float64, error) { return 0, nil })
	assert.ErrorContains(t, err, "nothing was done")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err = Compare(ctx, 3, func(context.Context, bool) (float64, error) { return 1, nil })
	require.NoError(t, err)
	assert.True(t, c.Interrupted)
	assert.Empty(t, c.Ratios)
}
