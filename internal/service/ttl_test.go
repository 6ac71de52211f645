package service

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestExpiry(t *testing.T) {
	const century = 3_153_600_000_000 // milliseconds of 36,500 days
	at, err := expiryAt(1000, century)
	require.NoError(t, err)
	assert.EqualValues(t, 1000+century, at)
	_, err = expiryAt(1000, century+1)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = expiryAt(1000, math.MaxUint64)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	at, err = expiryAt(math.MaxUint64-5, 6)
	require.NoError(t, err)
	assert.EqualValues(t, uint64(math.MaxUint64), at, "it does not wrap round into the past")
}

func TestTimeLeftIsNeverForEver(t *testing.T) {
	assert.EqualValues(t, 2, timeLeftAt(10, 12))
	assert.EqualValues(t, 1, timeLeftAt(11, 12))
	assert.EqualValues(t, 1, timeLeftAt(12, 12))
	assert.EqualValues(t, 1, timeLeftAt(13, 12))
}
