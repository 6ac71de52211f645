package vfs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write stores s at off in the open file.
func write(t testing.TB, f File, s string, off int64) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

// create makes a file that holds s, not synced, and leaves it open.
func create(t testing.TB, fsys FS, name, s string) File {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	write(t, f, s, 0)
	return f
}

// createSynced makes a file that holds s, with bytes and entry synced.
func createSynced(t testing.TB, fsys FS, dir, name, s string) File {
	t.Helper()
	f := create(t, fsys, dir+"/"+name, s)
	require.NoError(t, f.Sync())
	require.NoError(t, fsys.SyncDir(dir))
	return f
}

// readAll returns the content of an open file.
func readAll(t testing.TB, f File) string {
	t.Helper()
	size, err := f.Size()
	require.NoError(t, err)
	buf := make([]byte, size)
	n, err := f.ReadAt(buf, 0)
	require.NoError(t, err)
	require.Equal(t, len(buf), n)
	return string(buf)
}

const absent = "(absent)"

// read returns the content of the file of that name, or absent.
func read(t testing.TB, fsys FS, name string) string {
	t.Helper()
	if _, err := fsys.Stat(name); err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return absent
	}
	f, err := fsys.Open(name)
	require.NoError(t, err)
	s := readAll(t, f)
	require.NoError(t, f.Close())
	return s
}
