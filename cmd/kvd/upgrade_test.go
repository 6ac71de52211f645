package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
)

// oldStore returns a copy of a store whose log and clock have a format that this kvd only
// reads.
func oldStore(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../internal/engine/testdata/stores/log-1")))
	return dir
}

// filesOf returns a line for each file below a directory, with a hash of its contents.
func filesOf(t *testing.T, dir string) string {
	t.Helper()
	var lines strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		sum, err := sumOf(name)
		fmt.Fprintf(&lines, "%s %s\n", name, sum)
		return err
	}))
	return lines.String()
}

func TestUpgradeRewritesWhatIsOld(t *testing.T) {
	dir := oldStore(t)
	before := filesOf(t, dir)
	digest := command(t, "", nil, "digest", dir).out
	r := command(t, "", nil, "upgrade", dir, "--dry-run")
	require.Zero(t, r.code, r.err)
	assert.Regexp(t, `(?m)^log segment +1 +1 +\d+ +1 to 2 +2 +old, to be rewritten$`, r.out)
	assert.Regexp(t, `(?m)^CLOCK +1 .*old`, r.out)
	assert.Regexp(t, `(?m)^STORE +1 +1 +44 +1 +1 +ok$`, r.out)
	assert.Contains(t, r.out, dir+": 2 files would be rewritten\n")
	assert.Equal(t, before, filesOf(t, dir), "a dry run changes nothing")

	r = command(t, "", nil, "upgrade", dir)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, dir+": upgraded\n")
	assert.Equal(t, digest, command(t, "", nil, "digest", dir).out)
	assert.Zero(t, command(t, "", nil, "check", dir).code)
	before = filesOf(t, dir)
	for _, args := range [][]string{{"upgrade", dir}, {"upgrade", dir, "--dry-run"}} {
		r = command(t, "", nil, args...)
		require.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, dir+": nothing to upgrade\n")
		assert.NotContains(t, r.out, "old")
	}
	assert.Equal(t, before, filesOf(t, dir))
}

// A store that needs a newer kvd is refused by every command, and no byte of it changes.
func TestAStoreOfANewerFormatIsRefusedAndNotTouched(t *testing.T) {
	dir := oldStore(t)
	store := filepath.Join(dir, "STORE")
	data, err := os.ReadFile(store)
	require.NoError(t, err)
	data[8] = 2
	require.NoError(t, os.WriteFile(store, data, 0o600))
	before := filesOf(t, dir)
	for _, args := range [][]string{
		{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
		{"upgrade", dir}, {"upgrade", dir, "--dry-run"}, {"check", dir}, {"digest", dir}, {"dump", store},
	} {
		r := command(t, "", nil, args...)
		assert.Equal(t, daemon.ExitDamaged, r.code, "%v: %s", args, r.err)
		assert.Contains(t, r.err, "a newer kvd wrote this; use that version", "%v", args)
		assert.Equal(t, before, filesOf(t, dir), "%v", args)
	}
}

func TestUpgradeRefusesWhatItCannotUpgrade(t *testing.T) {
	served := t.TempDir()
	serve(t, served)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"upgrade"}, daemon.ExitUsage, "needs DIR"},
		{[]string{"upgrade", filepath.Join(t.TempDir(), "absent")}, daemon.ExitUsage, "no such file"},
		{[]string{"upgrade", t.TempDir()}, daemon.ExitUsage, "no store is in"},
		{[]string{"upgrade", binary}, daemon.ExitUsage, "not a directory"},
		{[]string{"upgrade", served}, daemon.ExitLocked, "stop the process"},
		{[]string{"upgrade", served, "--dry-run"}, daemon.ExitLocked, "stop the process"},
	} {
		r := command(t, "", nil, c.args...)
		assert.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		assert.Contains(t, r.err, c.says, "%v", c.args)
	}
	dir := oldStore(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p-0000", "CURRENT"), []byte("nonsense\n"), 0o600))
	r := command(t, "", nil, "upgrade", dir)
	assert.Equal(t, daemon.ExitDamaged, r.code, r.err)
	assert.Contains(t, r.err, "nothing was changed")
	assert.Contains(t, r.err, "kvd check DIR")
}

// A segment whose header cannot be read is named by itself. Whether it is damaged is decided by the
// log, as when the store is opened.
func TestUpgradeDoesNotPassOverADamagedLog(t *testing.T) {
	dir, segments := storeOfManyFiles(t)
	unused := filepath.Join(dir, "wal", "000999.wal") // as a crash leaves one
	require.NoError(t, os.WriteFile(unused, nil, 0o600))
	r := command(t, "", nil, "upgrade", dir, "--dry-run")
	assert.Zero(t, r.code, r.err)
	assert.Regexp(t, `(?m)^log segment +\? +1 +0 .*000999\.wal`, r.out)
	assert.Contains(t, r.out, "nothing to upgrade")

	for _, name := range segments[1:3] {
		flipByte(t, filepath.Join(dir, name), 20)
	}
	before := filesOf(t, dir)
	for _, args := range [][]string{{"upgrade", dir, "--dry-run"}, {"upgrade", dir}} {
		r := command(t, "", nil, args...)
		assert.Equal(t, daemon.ExitDamaged, r.code, r.err)
		for _, name := range segments[1:3] {
			assert.Regexp(t, `(?m)^log segment +\? +1 .*`+regexp.QuoteMeta(name), r.out)
		}
		assert.Contains(t, r.err, "nothing was changed")
		assert.NotContains(t, r.out, "nothing to upgrade")
	}
	assert.Equal(t, before, filesOf(t, dir))
}
