//go:build unix

package vfs_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// To open a named pipe waits for a writer, perhaps for ever.
func TestReadSmallDoesNotWaitForANamedPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	_, err := vfs.ReadSmall(vfs.OS, name, 100)
	require.ErrorContains(t, err, "it is no regular file")
}
