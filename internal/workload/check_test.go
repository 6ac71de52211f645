package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckAcceptsWhatLoadPutAndNothingElse(t *testing.T) {
	cfg, target := testConfig(), newMapTarget()
	cfg.Keys, cfg.KeyBytes = 10, 20
	require.NoError(t, Load(t.Context(), target, &cfg, 1, nil))
	require.NoError(t, Check(t.Context(), target, &cfg, 3))
	target.values["00000000000000000003"] = target.values["00000000000000000004"]
	require.ErrorIs(t, Check(t.Context(), target, &cfg, 3), ErrWrongAnswer)
	delete(target.values, "00000000000000000003")
	err := Check(t.Context(), target, &cfg, 3)
	require.ErrorIs(t, err, ErrWrongAnswer)
	assert.ErrorContains(t, err, "key 00000000000000000003 is lost")
}
