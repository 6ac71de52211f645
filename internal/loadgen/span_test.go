package loadgen

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOperationsAreSharedOut(t *testing.T) {
	s := Span{Workers: 4, Operations: 6}
	var shares []uint64
	for i := range 4 {
		n, any := s.share(i)
		require.True(t, any)
		shares = append(shares, n)
	}
	assert.Equal(t, []uint64{2, 2, 1, 1}, shares)
	s.Operations = 3
	_, any := s.share(3)
	assert.False(t, any, "0 would be no limit")
}
