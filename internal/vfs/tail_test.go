package vfs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTailWritesWhatWriteAtWould writes pieces of all lengths, some of them in the file
// system's own way, and now and then makes sure of them.
func TestTailWritesWhatWriteAtWould(t *testing.T) {
	for name, fsys := range map[string]FS{"OS": OS, "Mem": NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, fsys.MkdirAll(dir))
			random := rand.New(rand.NewPCG(1, 2))
			f := create(t, fsys, dir+"/a", "header, ")
			defer closeFile(t, f)
			want := []byte("header, ")
			tail := NewTail(f)
			for len(want) < 5*windowBytes {
				length := random.IntN(100)
				if random.IntN(50) == 0 {
					length = random.IntN(2 * pieceBytes)
				}
				piece := make([]byte, length)
				for i := range piece {
					piece[i] = byte(1 + random.IntN(255))
				}
				more := random.IntN(1000) > 0 || len(want) > windowBytes
				require.NoError(t, tail.Write(piece, int64(len(want)), more))
				want = append(want, piece...)
				if random.IntN(1000) == 0 {
					require.NoError(t, f.Sync())
				}
				if random.IntN(1000) == 0 {
					require.NoError(t, tail.Close())
				}
			}
			for range 2 {
				requireTail(t, want, readAll(t, f))
				require.NoError(t, tail.Close())
			}
		})
	}
}

// requireTail expects the content and zeros, fewer than a window.
func requireTail(t *testing.T, want []byte, got string) {
	t.Helper()
	require.GreaterOrEqual(t, len(got), len(want))
	require.True(t, string(want) == got[:len(want)], "the content differs")
	require.Less(t, len(got)-len(want), windowBytes)
	require.Empty(t, bytes.Trim([]byte(got[len(want):]), "\x00"))
}

// TestTailOfALonePieceEndsWithIt: what is seldom written to has no zeros at its end.
func TestTailOfALonePieceEndsWithIt(t *testing.T) {
	f := create(t, OS, t.TempDir()+"/a", "")
	defer closeFile(t, f)
	tail := NewTail(f)
	require.NoError(t, tail.Write([]byte("one"), 0, false))
	require.Equal(t, "one", readAll(t, f))
	require.NoError(t, tail.Close())
}
