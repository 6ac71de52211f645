package vfs

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlowReadsTakeTurns(t *testing.T) {
	for depth, takes := range map[int]time.Duration{0: time.Second, 1: 6 * time.Second, 4: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			fsys := SlowReads(NewMem(), time.Second, depth)
			began := time.Now()
			w, err := fsys.Create("f")
			require.NoError(t, err)
			_, err = w.WriteAt([]byte("hello"), 0)
			require.NoError(t, err)
			buf := make([]byte, 5)
			_, err = w.ReadAt(buf, 0)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			assert.Zero(t, time.Since(began), "files open for writing are not slowed")

			f, err := fsys.Open("f")
			require.NoError(t, err)
			began = time.Now()
			var readers sync.WaitGroup
			for range 6 {
				readers.Go(func() {
					buf := make([]byte, 5)
					n, err := f.ReadAt(buf, 0)
					assert.NoError(t, err)
					assert.Equal(t, "hello", string(buf[:n]))
				})
			}
			readers.Wait()
			assert.Equal(t, takes, time.Since(began), "depth %d", depth)

			_, err = f.ReadAt(buf, 9)
			assert.ErrorIs(t, err, io.EOF)
			require.NoError(t, f.Close())
			_, err = fsys.Open("none")
			assert.Error(t, err)
		})
	}
}
