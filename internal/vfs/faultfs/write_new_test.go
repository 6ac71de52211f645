package faultfs

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// A new file survives a power cut. After a failed step there is none, and a file that is there
// stays as it is.
func TestWriteNew(t *testing.T) {
	m := newMem(t)
	require.ErrorIs(t, vfs.WriteNew(m, "old", []byte("new")), fs.ErrExist)
	require.Equal(t, "hello", content(t, m, "old"))
	for _, kind := range []Kind{Create, Write, Sync, Close, SyncDir} {
		err := vfs.WriteNew(Wrap(m, FailAt(0, syscall.EIO, false, OnKind(kind))), "new", []byte("secret"))
		require.ErrorIs(t, err, syscall.EIO, kind)
		names, err := m.List("/")
		require.NoError(t, err)
		require.Equal(t, []string{"old"}, names, kind)
	}
	require.NoError(t, vfs.WriteNew(m, "new", []byte("secret")))
	require.Equal(t, "secret", content(t, m.CrashImage(vfs.DropAll, nil), "new"))
}
