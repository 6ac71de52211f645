package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/repair"
	"github.com/kvd-db/kvd/internal/testwait"
)

// tablesStore makes a store with a table and newer keys in the log, and a backup of it, and
// returns its digest.
func tablesStore(t *testing.T) (dir, backups, digest string) {
	t.Helper()
	dir, backups = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	p := serve(t, dir, "--create", "--partitions", "1", "--flush-keys", "500")
	client := p.client()
	for i := range 600 {
		require.NoError(t, client.Put(t.Context(), fmt.Appendf(nil, "key-%04d", i), fmt.Appendf(nil, "value %d %s", i, strings.Repeat("v", 100))))
	}
	testwait.Until(t, func() bool { // the one flush has become the base, and its delta is deleted
		tables, err := filepath.Glob(filepath.Join(dir, "p-0000", "*.sst"))
		require.NoError(t, err)
		return len(tables) == 1 && oneBase.MatchString(p.page("/metrics"))
	})
	p.must("backup", backups)
	digest = p.must("digest")
	require.Zero(t, p.end(syscall.SIGTERM))
	return dir, backups, digest
}

// A damaged block of a table costs its keys and no others, and a backup has them.
func TestADamagedTableIsRepairedInPlace(t *testing.T) {
	dir, backups, digest := tablesStore(t)
	table := filepath.Join(dir, findFile(t, dir, ".sst"))
	flipByte(t, table, 2000)
	require.Equal(t, 65, command(t, "", nil, "check", dir).code)
	before := tree(t, dir)
	work := t.TempDir()

	temporary := t.TempDir()
	r := command(t, "", []string{"TMPDIR=" + temporary}, "repair", "--range", dir, "--dry-run", "--from-backup", backups)
	assert.Zero(t, r.code, r.err)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left, "what it made meanwhile is removed")
	assert.Equal(t, before, tree(t, dir))
	r = command(t, "", []string{"TMPDIR=" + temporary}, "repair", "--range", dir, "--dry-run")
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.out, "1 LOSS.")
	assert.Contains(t, r.out, "tables to replace: 1")
	assert.Contains(t, r.err, "nothing was changed")
	r = command(t, "", nil, "repair", "--range", dir, "--aside", filepath.Join(work, "aside"))
	assert.Equal(t, 64, r.code, "without a terminal it does not ask: %s", r.err)
	assert.Contains(t, r.err, "--yes")
	assert.Equal(t, before, tree(t, dir))
	assert.NoDirExists(t, filepath.Join(work, "aside.scratch"))

	copied := filepath.Join(work, "copy")
	copyStore(t, copied, dir)
	report := filepath.Join(work, "report.json")
	r = command(t, "", nil, "repair", "--range", dir, "--aside", filepath.Join(work, "aside"), "--yes", "--report", report)
	assert.Equal(t, 65, r.code, "keys are lost: %s", r.err)
	assert.Contains(t, r.out, "repaired; the files that were replaced are in "+filepath.Join(work, "aside"))
	assert.FileExists(t, filepath.Join(work, "aside", "p-0000", filepath.Base(table)))
	assert.FileExists(t, filepath.Join(work, "aside", repair.ReportName))
	var told repair.Report
	data, err := os.ReadFile(report)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &told))
	require.True(t, told.InPlace.Done)
	require.Len(t, told.Losses, 1)
	requireOK(t, "check", dir)
	p := serve(t, dir, "--partitions", "1")
	assert.Equal(t, 600-int(told.Losses[0].Entries), strings.Count(p.must("scan", "--keys-only"), "\n"))
	require.Zero(t, p.end(syscall.SIGTERM))
	r = command(t, "", nil, "repair", "--range", dir, "--dry-run")
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "nothing to repair")

	r = command(t, "", nil, "repair", "--range", copied, "--aside", filepath.Join(work, "other"), "--yes", "--from-backup", backups, "--json")
	assert.Zero(t, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &told))
	assert.Empty(t, told.Losses)
	assert.Positive(t, told.Filled)
	assert.NoDirExists(t, filepath.Join(work, "other.backup"))
	requireOK(t, "check", copied)
	assert.Equal(t, digest, command(t, "", nil, "digest", copied).out)
}

// The help says what a dry run does, and what it does not do.
func TestTheHelpOfADryRun(t *testing.T) {
	help := strings.Join(strings.Fields(command(t, "", nil, "repair", "--help").out), " ")
	for _, says := range []string{
		"With --dry-run", "verifies every checksum", "changes no file in DIR", "does not look whether ASIDE has space", "the store must be stopped", "TMPDIR",
	} {
		assert.Contains(t, help, says)
	}
}

// A backup that is damaged is told from a damaged store, and nothing changes.
func TestRepairInPlaceFromADamagedBackup(t *testing.T) {
	dir, backups, _ := tablesStore(t)
	flipByte(t, filepath.Join(dir, findFile(t, dir, ".sst")), 2000)
	flipByte(t, filepath.Join(backups, findFile(t, backups, ".sst")), 2000)
	aside := filepath.Join(t.TempDir(), "aside")
	r := command(t, "", nil, "repair", "--range", dir, "--aside", aside, "--yes", "--from-backup", backups)
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.err, "kvd backup verify")
	for _, left := range []string{aside, aside + ".scratch", aside + ".backup"} {
		assert.NoDirExists(t, left)
	}
}

// Bad arguments, and a store that a server has open, change nothing.
func TestRepairInPlaceRefuses(t *testing.T) {
	dir, _ := killedStore(t)
	work := t.TempDir()
	aside := filepath.Join(work, "aside")
	link := filepath.Join(work, "link")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "inside"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "inside"), link))
	for _, args := range [][]string{
		{"repair", "--range", dir},
		{"repair", "--range", dir, "--aside", link, "--yes"},
		{"repair", dir, link},
		{"repair", dir, filepath.Join(link, "new", "store")},
		{"repair", "--range", dir, work, "--dry-run"},
		{"repair", "--range", dir, "--dry-run", "--partitions", "3"},
		{"repair", dir, aside, "--yes"},
		{"repair", dir, aside, "--dry-run"},
		{"repair", dir, aside, "--aside", aside},
		{"repair", "--range", dir, "--aside", dir, "--yes"},
		{"repair", "--range", dir, "--aside", filepath.Join(dir, "aside"), "--yes"},
		{"repair", "--range", dir, "--aside", filepath.Join(work, "absent", "aside"), "--yes"},
		{"repair", "--range", work, "--aside", aside, "--yes"},
		{"repair", "--range", filepath.Join(work, "absent"), "--aside", aside, "--yes"},
	} {
		r := command(t, "", nil, args...)
		assert.Equal(t, 64, r.code, "%v: %s", args, r.err)
		assert.Empty(t, r.out)
	}
	p := serve(t, dir)
	r := command(t, "", nil, "repair", "--range", dir, "--dry-run")
	assert.Equal(t, 75, r.code, r.err)
	require.Zero(t, p.end(syscall.SIGTERM))
	flipByte(t, filepath.Join(dir, findFile(t, dir, ".wal")), 100)
	r = command(t, "", nil, "repair", "--range", dir, "--dry-run")
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.err, "kvd repair SRC DST")
}
