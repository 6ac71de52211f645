package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestReadsAreCounted(t *testing.T) {
	var counts vfs.ReadCounts
	fsys := vfs.CountReads(vfs.NewMem(), &counts)
	require.NoError(t, fsys.MkdirAll("d"))
	f, err := fsys.Create("d/a")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("0123456789"), 0)
	require.NoError(t, err)
	assert.Zero(t, counts.Calls())

	buf := make([]byte, 4)
	_, err = f.ReadAt(buf, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, open := range []func(string) (vfs.File, error){fsys.Open, fsys.OpenReadWrite} {
		f, err := open("d/a")
		require.NoError(t, err)
		_, err = f.ReadAt(buf, 8) // two bytes and the end of the file
		require.Error(t, err)
		require.NoError(t, f.Close())
	}
	assert.EqualValues(t, 3, counts.Calls())
	assert.EqualValues(t, 4+2+2, counts.Bytes())
	_, err = fsys.Open("d/none")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestEvictLeavesTheFileAsItIs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	err := vfs.Evict(name)
	if runtime.GOOS != "linux" {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "content", string(data))
	assert.ErrorIs(t, vfs.Evict(name+"x"), fs.ErrNotExist)
}
