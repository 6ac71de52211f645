package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// An operator removes LOCK. The store stays locked, or two servers would
// write to one log and lose what both acknowledge.
func TestWithoutItsLockFileAStoreIsStillLocked(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	p.must("put", "before", "1")
	require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
	r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 75, r.code, r.err)
	assert.Empty(t, r.out, "never READY")
	for _, args := range [][]string{{"check", dir}, {"digest", dir}} {
		assert.Equal(t, 75, command(t, "", nil, args...).code, args)
	}
	client := p.client()
	for i := range 100 {
		require.NoError(t, client.Put(t.Context(), []byte(strconv.Itoa(i)), []byte("1"), kvd.Durable(kvd.Sync)))
	}
	require.Equal(t, -1, p.end(9))
	client = serve(t, dir).client()
	for i := range 100 {
		value, err := client.Get(t.Context(), []byte(strconv.Itoa(i)))
		require.NoError(t, err)
		assert.Equal(t, "1", string(value))
	}
}

// A server whose files are not where it found them writes to a place where no later start looks for
// it: what it acknowledged would be gone with its end.
func TestAServerWhoseFilesWereTakenAwayStops(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, dir string){
		"log directory removed": func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "wal")))
		},
		"log directory replaced": func(t *testing.T, dir string) {
			replaceDir(t, filepath.Join(dir, "wal"))
		},
		"segment removed": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, findFile(t, dir, ".wal"))))
		},
		"segment replaced": func(t *testing.T, dir string) {
			name := filepath.Join(dir, findFile(t, dir, ".wal"))
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(name+".new", content, 0o600))
			require.NoError(t, os.Rename(name+".new", name))
		},
		"STORE removed": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "STORE")))
		},
		"partition replaced": func(t *testing.T, dir string) {
			replaceDir(t, filepath.Join(dir, "p-0001"))
		},
		"renamed":  func(t *testing.T, dir string) { require.NoError(t, os.Rename(dir, dir+".old")) },
		"replaced": replaceDir,
		"removed":  func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits until its server has looked
			dir := filepath.Join(t.TempDir(), "data")
			p := serve(t, dir)
			p.must("put", "a", "1", "--ttl", "1h")
			take(t, dir)
			assert.Equal(t, 74, p.wait(), p.log.String())
			assert.Contains(t, p.log.String(), "not where the store opened it")
			if entries, err := os.ReadDir(dir); err == nil && name == "replaced" {
				assert.Empty(t, entries, "nothing is written into what is another's")
			}
		})
	}
}

// replaceDir puts an empty directory in the place of one.
func replaceDir(t *testing.T, dir string) {
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o700))
}
