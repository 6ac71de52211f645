package auth_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A symbolic link hides no file that others may write to.
func TestAFileBehindALinkThatOthersMayWriteToIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "tokens"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, []byte(`{"version": 1}`), 0o600))
	require.NoError(t, os.Symlink(file, link))
	_, err := auth.Open(vfs.OS, link, func(error) {})
	require.NoError(t, err)
	require.NoError(t, os.Chmod(file, 0o666)) //nolint:gosec // that is what is refused
	_, err = auth.Open(vfs.OS, link, func(error) {})
	require.ErrorContains(t, err, "users other than its owner may write to it")
}
