package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIncarnationsAreWritten(t *testing.T) {
	for text, want := range map[string]Incarnation{
		"": {}, "0": {}, "1-00c0ffee00c0ffee": {1, 0xc0ffee_00c0ffee}, "4294967295-ffffffffffffffff": {1<<32 - 1, 1<<64 - 1},
	} {
		got, err := ParseIncarnation(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		if text != "" {
			require.Equal(t, text, got.String())
		}
	}
	for _, bad := range []string{"1", "-", "0-0", "00", "1-", "1-c0ffee", "1-00C0FFEE00C0FFEE", "4294967296-00c0ffee00c0ffee", "1-00c0ffee00c0ffee-1", "x"} {
		_, err := ParseIncarnation(bad)
		require.ErrorIs(t, err, ErrInvalidArgument, bad)
	}
	first, second := Incarnation{1, 9}, Incarnation{2, 3}
	require.Equal(t, second, first.Later(second))
	require.Equal(t, second, second.Later(first))
	require.Equal(t, first, Incarnation{}.Later(first))
}
