package vfs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestReadSmallFollowsLinksAndIsBounded(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o600))
	require.NoError(t, os.Symlink("file", link))
	for _, name := range []string{file, link} {
		got, err := vfs.ReadSmall(vfs.OS, name, 5)
		require.NoError(t, err)
		assert.Equal(t, "12345", string(got))
	}
	_, err := vfs.ReadSmall(vfs.OS, link, 4)
	require.ErrorContains(t, err, "more than 4 bytes")
	_, err = vfs.ReadSmall(vfs.OS, dir, 5)
	require.Error(t, err)
	_, err = vfs.ReadSmall(vfs.OS, file+"x", 5)
	require.ErrorIs(t, err, fs.ErrNotExist)

	memory := vfs.NewMem()
	_, err = vfs.ReadSmall(memory, "file", 5)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, text := range []string{"", "12345"} {
		require.NoError(t, vfs.WriteAtomic(memory, "file", []byte(text)))
		got, err := vfs.ReadSmall(memory, "file", 5)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
}
