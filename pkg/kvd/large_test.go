package kvd

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatIsFarTooLargeIsRefusedAsThat: a value beyond what a message may have is refused
// before the server reads it, so nothing was written. A time to live keeps its
// figure.
func TestWhatIsFarTooLargeIsRefusedAsThat(t *testing.T) {
	db := openMemory(t)
	for _, size := range []int{5 << 20, 9 << 20, 20 << 20, 70 << 20} {
		err := db.Put(t.Context(), []byte("k"), make([]byte, size))
		require.ErrorIs(t, err, ErrTooLarge, "%d bytes", size)
		assert.NotErrorIs(t, err, ErrUncertain, "%d bytes", size)
	}
	err := db.Put(t.Context(), []byte("k"), nil, TTL(math.MaxInt64*time.Nanosecond))
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "9223372036855 ms, limit is 3153600000000")
}
