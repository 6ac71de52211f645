//go:build unix

package vfs

import (
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Want of descriptors passes, and any other error does not.
func TestAnOpenWaitsForADescriptor(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE} {
		synctest.Test(t, func(t *testing.T) {
			free := time.Now().Add(20 * time.Second)
			n, err := withDescriptor(func() (int, error) {
				if time.Now().Before(free) {
					return 0, &fs.PathError{Op: "open", Path: "x", Err: errno}
				}
				return 7, nil
			})
			require.NoError(t, err)
			assert.Equal(t, 7, n)
			assert.Less(t, time.Since(free), time.Second)
		})
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			_, err := withDescriptor(func() (int, error) { return 0, errno })
			require.ErrorIs(t, err, errno)
			assert.InDelta(t, descriptorWait.Seconds(), time.Since(begun).Seconds(), 1)
		})
	}
	asked := 0
	_, err := withDescriptor(func() (int, error) {
		asked++
		return 0, unix.EIO
	})
	require.ErrorIs(t, err, unix.EIO)
	assert.Equal(t, 1, asked)
}
