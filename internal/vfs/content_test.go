package vfs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

// TestContentIsBytes compares random writes, zeros, truncates and snapshots
// with a plain slice of bytes.
func TestContentIsBytes(t *testing.T) {
	testsize.OneGoroutine(t)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var c content
		var model []byte
		type saved struct {
			content content
			model   []byte
		}
		var snapshots []saved
		const limit = 3*chunkBytes + 100
		grow := func(size int64) {
			if n := size - int64(len(model)); n > 0 {
				model = append(model, make([]byte, n)...)
			}
		}
		for range 60 {
			off := rng.Int64N(limit)
			n := rng.Int64N(int64([]int{1, 100, pageBytes, 3 * pageBytes, 2 * chunkBytes}[rng.IntN(5)])) + 1
			switch rng.IntN(5) {
			case 0, 1:
				p := bytes.Repeat([]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}, int(n)/3+1)[:n]
				c.writeAt(p, off)
				grow(off + n)
				copy(model[off:], p)
			case 2:
				c.zero(off, n)
				grow(off + n)
				clear(model[off : off+n])
			case 3:
				c.truncate(off)
				grow(off)
				model = model[:off:off]
			case 4:
				snapshots = append(snapshots, saved{c.snapshot(), bytes.Clone(model)})
			}
			snapshots = append(snapshots[:len(snapshots):len(snapshots)], saved{c, model})
			for _, s := range snapshots {
				require.Equal(t, int64(len(s.model)), s.content.size, "seed %d", seed)
				from := rng.Int64N(s.content.size + 1)
				got := make([]byte, min(s.content.size-from, 2*pageBytes))
				require.Equal(t, len(got), s.content.readAt(got, from), "seed %d", seed)
				require.True(t, bytes.Equal(s.model[from:from+int64(len(got))], got), "seed %d", seed)
			}
			snapshots = snapshots[:len(snapshots)-1]
		}
		for _, s := range append(snapshots, saved{c, model}) {
			got := make([]byte, s.content.size)
			s.content.readAt(got, 0)
			require.True(t, bytes.Equal(s.model, got), "seed %d", seed)
		}
	}
}

func TestZerosTakeNoMemory(t *testing.T) {
	var c content
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < 64<<20; off += int64(len(zeros)) {
		c.writeAt(zeros, off)
	}
	require.Equal(t, int64(64<<20), c.size)
	require.Empty(t, c.chunks)

	c.writeAt([]byte("x"), 5*chunkBytes)
	c.zero(5*chunkBytes, pageBytes)
	require.Nil(t, c.page(5*chunkBytes), "a page zeroed is given back")
}

func TestTruncateZeroesWhatItCutsOff(t *testing.T) {
	var c content
	c.writeAt([]byte("abcdef"), 0)
	c.truncate(2)
	c.truncate(6)
	got := make([]byte, 10)
	require.Equal(t, 6, c.readAt(got, 0))
	require.Equal(t, "ab\x00\x00\x00\x00", string(got[:6]))
}
