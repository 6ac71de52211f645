package embed

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCopiesOfAnArenaAreApart(t *testing.T) {
	var a arena
	var copies, want [][]byte
	for n := range 3000 {
		key, value := bytes.Repeat([]byte{byte(n)}, n%100), bytes.Repeat([]byte{byte(n + 1)}, n*7%20_000)
		k, v := a.clone(key, value)
		copies, want = append(copies, k, v), append(want, bytes.Clone(key), bytes.Clone(value))
		clear(key)
		clear(value)
	}
	for i, c := range copies {
		assert.True(t, c != nil && bytes.Equal(want[i], c), i)
		assert.Equal(t, len(c), cap(c), "an append must not reach the next copy")
	}
}

func TestAnArenaAllocatesLittle(t *testing.T) {
	key, value := make([]byte, 16), make([]byte, 100)
	assert.LessOrEqual(t, testing.AllocsPerRun(20, func() {
		var a arena
		for range 1000 {
			a.clone(key, value)
		}
	}), 10.0, "for 2,000 copies")
}
