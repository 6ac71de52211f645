package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuePointersComeBack(t *testing.T) {
	for _, p := range []ValuePointer{
		{File: 1, Length: 1}, {File: 12, Offset: 4096, Length: 1000},
		{File: 1<<64 - 1, Offset: 1<<63 - 1, Length: MaxValueBytes},
	} {
		stored := p.AppendTo(nil)
		require.LessOrEqual(t, len(stored), MaxValuePointerBytes)
		got, ok := ParseValuePointer(stored)
		require.True(t, ok)
		require.Equal(t, p, got)
		for n := range stored {
			_, ok := ParseValuePointer(stored[:n])
			require.False(t, ok, "cut")
		}
		_, ok = ParseValuePointer(append(stored, 0))
		require.False(t, ok, "trailing bytes")
	}
}

func FuzzValuePointer(f *testing.F) {
	f.Add(ValuePointer{File: 300, Offset: 1 << 40, Length: 70_000}.AppendTo(nil))
	f.Add([]byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := ParseValuePointer(b); ok {
			require.Equal(t, b, p.AppendTo(nil))
			require.NotZero(t, p.File)
			require.NotZero(t, p.Length)
			require.LessOrEqual(t, p.Length, uint32(MaxValueBytes))
		}
	})
}
