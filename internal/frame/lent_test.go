package frame

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// given counts the bytes that a lender got back.
type given int64

func (g *given) Give(bytes int64) { *g += given(bytes) }

// The bytes stay reserved until the transport is through with the tail, which is not copied.
func TestPartsStayLentUntilTheTailIsSent(t *testing.T) {
	var back given
	tail := make([]byte, leastCounted+1)
	data, err := Codec().Marshal(&LentParts{Head: make([]byte, leastCounted+1), Tail: tail, Lender: &back, Bytes: 7})
	require.NoError(t, err)
	require.Len(t, data, 2)
	assert.Same(t, &tail[0], &data[1].ReadOnlyData()[0])
	data[0].Free()
	assert.Zero(t, back)
	data[1].Free()
	assert.EqualValues(t, 7, back)
}
