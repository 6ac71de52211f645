package record

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A record that is cut has the operations of its first units, byte for byte.
func TestCutKeepsWholeUnits(t *testing.T) {
	whole := exampleRecord()
	all, err := decodeAll(whole)
	require.NoError(t, err)
	for units := range uint32(4) {
		cut, err := Cut(whole, units)
		require.NoError(t, err)
		var want []Op
		for _, op := range all {
			if op.Unit < units {
				want = append(want, op)
			}
		}
		got, err := decodeAll(cut)
		require.NoError(t, err)
		require.Equal(t, want, got, "%d units", units)
	}
	same, err := Cut(whole, 2)
	require.NoError(t, err)
	require.Equal(t, whole, same)
	_, err = Cut(whole[:len(whole)-1], 2)
	require.ErrorIs(t, err, errMalformed)
}
