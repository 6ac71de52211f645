package kvd

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// touchedKeys says what a map says, up to the first conflict.
func TestTouchedKeysAreThoseOfAMap(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	var keys touchedKeys
	for _, n := range []int{1, 2, 3, 100, 7, 1000} {
		keys.reset()
		written := make(map[uint64]bool)
		for range n {
			hash, writes := draw.Uint64N(uint64(n))<<uint(draw.IntN(60))<<2, draw.IntN(n) == 0
			before, touched := written[hash]
			conflict := touched && (before || writes)
			require.Equal(t, conflict, keys.add(hash, writes))
			if conflict {
				break
			}
			written[hash] = writes
		}
	}
}
