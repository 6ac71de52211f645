package peer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// Nodes tell each other their digests; what is no member is refused.
func TestDigests(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	_, err := n1.Compare(t.Context(), 2, Digest{1, 2})
	require.ErrorContains(t, err, "this node compares nothing")
	_, err = n1.Compare(t.Context(), 9, Digest{})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)

	heard := map[uint64]Digest{}
	n2.SetCompare(func(node uint64, theirs Digest) Digest {
		heard[node] = theirs
		return Digest{3, 1 << 63}
	})
	theirs, err := n1.Compare(t.Context(), 2, Digest{1, 2})
	require.NoError(t, err)
	require.Equal(t, Digest{3, 1 << 63}, theirs)
	require.Equal(t, map[uint64]Digest{1: {1, 2}}, heard)

	require.NoError(t, n2.SetMembers(map[uint64]string{2: n2.Addr()}))
	_, err = n1.Compare(t.Context(), 2, Digest{1, 2})
	require.ErrorContains(t, err, "node 1 is no member")
	require.Len(t, heard, 1)
}
