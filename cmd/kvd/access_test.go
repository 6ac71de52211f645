package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
)

// tree describes every file and directory: mode, size, time of the last change, and content, as sumOf does.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, name, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			sum, err := sumOf(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, "  %s\n", sum)
		}
		return nil
	}))
	return all.String()
}

// sumOf returns a checksum of a file. Of the ballast of a store, tens of MiB that mean nothing, it
// returns the size and the time of the last change.
func sumOf(name string) (string, error) {
	if filepath.Base(name) == descriptor.BallastName {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(info.Size(), " bytes of ", info.ModTime().UnixNano()), nil
	}
	content, err := os.ReadFile(name)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}

// copyStore copies the directory of a store. The copy of the ballast is a hole of the same size.
func copyStore(t *testing.T, to, from string) {
	t.Helper()
	require.NoError(t, os.CopyFS(to, withoutBallast{os.DirFS(from)}))
	if info, err := os.Stat(filepath.Join(from, descriptor.BallastName)); err == nil {
		name := filepath.Join(to, descriptor.BallastName)
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		require.NoError(t, os.Truncate(name, info.Size()))
	}
}

type withoutBallast struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (w withoutBallast) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == descriptor.BallastName }), err
}

// killedStore returns the directory of a store that was killed, with tables, a log, and
// no LOCK, and its digest.
func killedStore(t *testing.T) (dir, digest string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	p := serve(t, dir, "--flush-keys", "10")
	lines := ""
	for i := range 100 {
		lines += fmt.Sprintf("{\"key\":\"key/%d\",\"value\":\"%d\"}\n", i, i)
	}
	r := p.kvdWith(lines, "import")
	require.Zero(t, r.code, r.err)
	p.must("put", "lease", "1", "--ttl", "1h")
	digest = p.must("digest", p.addr)
	p.end(9)
	require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
	return dir, digest
}

// A command that looks at a stopped store, above all as root, creates no file that
// the service could not open afterwards.
func TestLookingAtAStoppedStoreChangesNothing(t *testing.T) {
	dir, digest := killedStore(t)
	before := tree(t, dir)
	r := command(t, "", nil, "digest", dir)
	require.Zero(t, r.code, r.err)
	assert.Equal(t, digest, r.out)
	require.Equal(t, before, tree(t, dir), "digest")
	r = command(t, "", nil, "check", dir)
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	require.Equal(t, before, tree(t, dir), "check")
	for _, name := range []string{"STORE", "CLOCK", findFile(t, dir, ".wal"), "p-0000/CURRENT"} {
		r = command(t, "", nil, "dump", filepath.Join(dir, name))
		require.Zero(t, r.code, r.err)
	}
	require.Equal(t, before, tree(t, dir), "dump")
	p := serve(t, dir)
	assert.Equal(t, digest, p.must("digest", p.addr))
}

func TestADirectoryThatOthersHaveAHandInIsRefused(t *testing.T) {
	refused := func(t *testing.T, dir, says string) {
		t.Helper()
		r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		assert.Equal(t, 64, r.code, r.err)
		assert.Contains(t, r.err, says)
		assert.Empty(t, r.out)
	}
	t.Run("others may write", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o770, 0o707, 0o777} {
			dir := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, mode))
			refused(t, dir, "chmod go-w")
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, entries)
		}
	})
	t.Run("another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a directory away")
		}
		dir, digest := killedStore(t)
		require.NoError(t, os.Chown(dir, 12345, -1))
		before := tree(t, dir)
		refused(t, dir, "belongs to user 12345")
		assert.Equal(t, before, tree(t, dir))
		assert.Equal(t, digest, command(t, "", nil, "digest", dir).out, "looking is allowed")
	})
	for _, part := range []string{"wal", "p-0001"} {
		t.Run("link in place of "+part, func(t *testing.T) {
			dir, _ := killedStore(t)
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			require.NoError(t, os.Rename(filepath.Join(dir, part), elsewhere))
			require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, part)))
			refused(t, dir, part+" is a symbolic link")
		})
	}
}

// A link to the whole directory is an operator's way to another disk.
func TestADataDirectoryMayBeALink(t *testing.T) {
	dir, digest := killedStore(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	assert.Equal(t, digest, command(t, "", nil, "digest", link).out)
	p := serve(t, link)
	assert.Equal(t, digest, p.must("digest", p.addr))
	r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 75, r.code, "by whatever name")
	assert.Zero(t, p.end(15))
}
