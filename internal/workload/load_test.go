package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatLoadPutsIsFoundByRunsThatExpectIt(t *testing.T) {
	cfg, target := testConfig(), newMapTarget()
	cfg.Keys, cfg.Workers, cfg.FindRate, cfg.Mix, cfg.KeyBytes = 900, 3, 1, PureMixes[0], 20
	var done, total uint64
	require.NoError(t, Load(t.Context(), target, &cfg, 7, func(d, n uint64) { done, total = d, n }))
	assert.Len(t, target.values, 900)
	assert.EqualValues(t, 900, done)
	assert.EqualValues(t, 900, total)

	cfg.Present = cfg.Keys
	for _, d := range Distributions {
		cfg.Distribution = d
		r, err := runSteps(t, cfg, target, 2000)
		require.NoError(t, err, d)
		assert.EqualValues(t, 2000, r.totals().Extra[getFound], d)
	}

	target.values["00000000000000000003"] = []byte("wrong")
	_, err := runSteps(t, cfg, target, 2000)
	require.ErrorIs(t, err, ErrWrongAnswer)
	assert.ErrorContains(t, err, "0003")
}
