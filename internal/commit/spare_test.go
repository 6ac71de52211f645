package commit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A record that is too large to be kept for another is held by nothing once it is decided.
func TestALargeRecordIsNotKept(t *testing.T) {
	p := new(Coordinator)
	p.recycle(p.newPending())
	require.Len(t, p.spare, 1)
	large := p.newPending()
	large.payload = make([]byte, 2<<20)
	p.recycle(large)
	require.Empty(t, p.spare)
	for _, kept := range p.spare[:cap(p.spare)] {
		require.True(t, kept == nil, "it and the request that it came from stay in memory")
	}
}
