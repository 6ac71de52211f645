package kv

import (
	"bytes"
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestKeyWordsAreInTheOrderOfKeys(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xff}), 0, 20)
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		common := CommonPrefix(a, b)
		require.Equal(t, a[:common], b[:common])
		require.False(t, common < min(len(a), len(b)) && a[common] == b[common])

		depth := rapid.IntRange(0, common).Draw(t, "depth")
		x, y := KeyWord(a, depth), KeyWord(b, depth)
		if x != y {
			require.Equal(t, bytes.Compare(a, b), cmp.Compare(x, y))
		}
		next := append(bytes.Clone(a[depth:]), make([]byte, 8)...)[:8]
		for i, c := range next {
			require.Equal(t, c, byte(x>>(56-8*i)))
		}
	})
}
