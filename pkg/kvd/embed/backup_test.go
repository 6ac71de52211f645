package embed_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// The files of a backup, in a directory, are a store.
func TestABackupIsAStore(t *testing.T) {
	db, err := embed.Memory()
	require.NoError(t, err)
	require.NoError(t, db.Put(t.Context(), []byte("k"), []byte("v")))
	b, err := db.Backup(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, db.Put(t.Context(), []byte("k"), []byte("later")))
	dir := filepath.Join(t.TempDir(), "copy")
	for _, f := range b.Info().Files {
		_, content, err := b.Fetch(f.Name)
		require.NoError(t, err)
		data, err := io.ReadAll(content)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(f.Name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), data, 0o600))
	}
	_, _, err = b.Fetch("absent")
	require.ErrorContains(t, err, "kvd backup")
	require.NoError(t, b.Close())
	require.NoError(t, db.Close())

	restored, err := embed.Open(dir, embed.WithExisting())
	require.NoError(t, err)
	v, err := restored.Get(t.Context(), []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, restored.Close())
}
