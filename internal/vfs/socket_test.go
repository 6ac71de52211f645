//go:build unix

package vfs_test

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestASocketIsItsUsersAlone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	l, err := vfs.ListenUnix(name)
	require.NoError(t, err)
	info, err := os.Lstat(name)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())

	_, err = vfs.ListenUnix(name)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a process listens")
	require.NoError(t, l.Close())
	_, err = os.Lstat(name)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestADeadSocketIsReplacedAndNothingElse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", name)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	require.NoError(t, dead.Close())
	l, err := vfs.ListenUnix(name)
	require.NoError(t, err)
	require.NoError(t, l.Close())

	require.NoError(t, os.WriteFile(name, []byte("data"), 0o600))
	_, err = vfs.ListenUnix(name)
	require.ErrorContains(t, err, "exists and is no socket")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "data", string(text))
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "x"), name))
	_, err = vfs.ListenUnix(name)
	require.ErrorContains(t, err, "exists and is no socket")
	_, err = vfs.ListenUnix(filepath.Join(t.TempDir(), "none", "s"))
	require.Error(t, err)
}
