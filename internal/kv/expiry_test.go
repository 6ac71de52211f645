package kv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExpiry(t *testing.T) {
	const century = 3_153_600_000_000 // milliseconds of 36,500 days
	at, err := ExpiryAt(1000, century)
	require.NoError(t, err)
	assert.EqualValues(t, 1000+century, at)
	_, err = ExpiryAt(1000, century+1)
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, err = ExpiryAt(1000, math.MaxUint64)
	require.ErrorIs(t, err, ErrInvalidArgument)
	at, err = ExpiryAt(math.MaxUint64-5, 6)
	require.NoError(t, err)
	assert.EqualValues(t, uint64(math.MaxUint64), at, "it does not wrap round into the past")
}

func TestTimeLeftIsNeverForEver(t *testing.T) {
	assert.EqualValues(t, 2, TimeLeftAt(10, 12))
	assert.EqualValues(t, 1, TimeLeftAt(11, 12))
	assert.EqualValues(t, 1, TimeLeftAt(12, 12))
	assert.EqualValues(t, 1, TimeLeftAt(13, 12))
}
