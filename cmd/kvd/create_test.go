package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// An empty store in the wrong place looks as if all data were lost.
func TestAStoreIsMadeOnlyWhereItIsMeantToBe(t *testing.T) {
	top := t.TempDir()
	missing := filepath.Join(top, "not-mounted", "data")
	full := filepath.Join(top, "photos")
	require.NoError(t, os.Mkdir(full, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(full, "cat.jpg"), nil, 0o600))
	for dir, says := range map[string]string{missing: "is its disk mounted?", full: "cat.jpg"} {
		before := tree(t, top)
		r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		assert.Equal(t, 64, r.code, r.err)
		assert.Contains(t, r.err, says)
		assert.Contains(t, r.err, "--create")
		assert.Equal(t, before, tree(t, top))
		p := serve(t, dir, "--create")
		p.must("put", "a", "1")
		require.Zero(t, p.end(15))
		p = serve(t, dir)
		assert.Equal(t, "1", p.must("get", "a"), "what is there needs no --create")
		require.Zero(t, p.end(15))
	}
	fresh := filepath.Join(top, "data")
	require.Zero(t, serve(t, fresh).end(15), "the directory alone is made")
	disk := filepath.Join(top, "disk")
	require.NoError(t, os.MkdirAll(filepath.Join(disk, "lost+found"), 0o700))
	require.NoError(t, os.Chmod(disk, 0o755))
	require.Zero(t, serve(t, disk).end(15), "a fresh file system")
}

// In a directory that a restore or a repair has not filled yet no store is made, not even with
// --create.
func TestNoStoreIsMadeInAnUnfinishedRestore(t *testing.T) {
	for _, name := range []string{"RESTORING", "REPAIRING"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		for _, create := range []string{"--create", "--create=false"} {
			r := command(t, "", nil, "serve", "--data", dir, create, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
			assert.Equal(t, 64, r.code, r.err)
			assert.Contains(t, r.err, name)
			assert.NotContains(t, r.err, "pass --create")
		}
		_, err := embed.Open(dir)
		assert.ErrorIs(t, err, kvd.ErrInvalid)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, left, 1)
	}
}

// With fewer partitions than it has, a store would not find most of its keys.
func TestAStoreWithMorePartitionsThanItSaysIsDamaged(t *testing.T) {
	dir, _ := killedStore(t)
	name := filepath.Join(dir, "STORE")
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	d, err := descriptor.Decode(name, content)
	require.NoError(t, err)
	d.Partitions--
	require.NoError(t, os.WriteFile(name, d.Encode(), 0o600))
	for _, args := range [][]string{
		{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, {"check", dir}, {"digest", dir},
	} {
		r := command(t, "", nil, args...)
		assert.Equal(t, 65, r.code, "%v: %s", args, r.err)
		assert.Contains(t, r.err, "says 2 partitions, but there is p-0002", args)
	}
}

func TestFormatZeroIsDamageAndNoNewerVersion(t *testing.T) {
	dir, _ := killedStore(t)
	for _, name := range []string{"STORE", "CLOCK"} {
		copied := filepath.Join(t.TempDir(), "data")
		copyStore(t, copied, dir)
		file := filepath.Join(copied, name)
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		copy(content[8:12], make([]byte, 4))
		require.NoError(t, os.WriteFile(file, content, 0o600))
		r := command(t, "", nil, "serve", "--data", copied, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		assert.Equal(t, 65, r.code)
		assert.Contains(t, r.err, "format 0")
		assert.NotContains(t, r.err, "newer")
	}
}
