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
)

// flipByte changes one byte of a file, which the store then refuses.
func flipByte(t *testing.T, name string, at int) {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	content[at] ^= 1
	require.NoError(t, os.WriteFile(name, content, 0o600))
}

// Two changed bytes in the log make a store that no server opens. The repaired store is
// served, has every other write, and the report says what it lost.
func TestADamagedLogIsRepaired(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serve(t, dir, "--create")
	client := p.client()
	for i := range 40 {
		require.NoError(t, client.Put(t.Context(), fmt.Appendf(nil, "key-%02d", i), []byte("value")))
	}
	require.Zero(t, p.end(syscall.SIGTERM))
	flipByte(t, filepath.Join(dir, findFile(t, dir, ".wal")), 2000)
	require.Equal(t, 65, command(t, "", nil, "check", dir).code)
	before := tree(t, dir)

	fresh := filepath.Join(t.TempDir(), "repaired")
	file := filepath.Join(t.TempDir(), "report.json")
	r := command(t, "", nil, "repair", dir, fresh, "--report", file)
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.out, "These writes may be missing")
	assert.Contains(t, r.out, "wal/000001.wal")
	assert.Contains(t, r.err, "writes may be missing in it")
	assert.Equal(t, before, tree(t, dir), "the damaged store is not changed")

	var report repair.Report
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &report))
	assert.Equal(t, repair.ReportVersion, report.Version)
	require.NotEmpty(t, report.Losses)
	require.Zero(t, command(t, "", nil, "check", fresh).code)
	q := serve(t, fresh)
	kept := strings.Count(q.must("scan", "--keys-only"), "\n")
	assert.Equal(t, 39, kept, "a damaged frame holds one of these writes")
	q.must("put", "key-99", "the repaired store takes writes")
	require.Zero(t, q.end(syscall.SIGTERM))

	again := command(t, "", nil, "repair", dir, fresh)
	assert.Equal(t, 64, again.code)
	assert.Contains(t, again.err, "is not empty")
	again = command(t, "", nil, "repair", dir, filepath.Join(t.TempDir(), "new"), "--report", file)
	assert.Equal(t, 64, again.code)
	assert.Contains(t, again.err, "exists")
}

// A store without damage is copied, and a server that has the store open is respected.
func TestAHealthyStoreIsCopiedByRepair(t *testing.T) {
	dir, digest := killedStore(t)
	fresh := filepath.Join(t.TempDir(), "repaired")
	r := command(t, "", nil, "repair", dir, fresh, "--json")
	require.Zero(t, r.code, r.err)
	var report repair.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	assert.Empty(t, report.Losses)
	assert.Equal(t, digest, command(t, "", nil, "digest", fresh).out)

	p := serve(t, dir)
	r = command(t, "", nil, "repair", dir, filepath.Join(t.TempDir(), "other"))
	assert.Equal(t, 75, r.code, r.err)
	require.Zero(t, p.end(syscall.SIGTERM))

	// A repair that was interrupted has left REPAIRING and no STORE.
	require.NoError(t, os.WriteFile(filepath.Join(fresh, "REPAIRING"), nil, 0o600))
	require.NoError(t, os.Remove(filepath.Join(fresh, "STORE")))
	r = command(t, "", nil, "repair", dir, fresh)
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "a repair that was interrupted")
	r = command(t, "", nil, "serve", "--data", fresh, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 64, r.code, r.err)
	assert.Contains(t, r.err, "REPAIRING")
}

// Whatever the damaged store has lost, the backup has.
func TestARepairFillsFromABackup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serve(t, dir, "--create")
	client := p.client()
	for i := range 20 {
		require.NoError(t, client.Put(t.Context(), fmt.Appendf(nil, "key-%02d", i), []byte("value")))
	}
	backups := filepath.Join(t.TempDir(), "backups")
	p.must("backup", backups)
	digest := p.must("digest")
	require.Zero(t, p.end(syscall.SIGTERM))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "wal")))

	fresh := filepath.Join(t.TempDir(), "repaired")
	r := command(t, "", nil, "repair", dir, fresh, "--from-backup", backups)
	assert.Equal(t, 65, r.code, "what was written after the backup is not known")
	assert.Contains(t, r.out, "filled from the backup of version")
	assert.Equal(t, digest, command(t, "", nil, "digest", fresh).out)
	require.Zero(t, command(t, "", nil, "check", fresh).code)
	assert.NoDirExists(t, fresh+".backup")

	restored := filepath.Join(t.TempDir(), "restored")
	requireOK(t, "restore", backups, restored)
	again := filepath.Join(t.TempDir(), "again")
	r = command(t, "", nil, "repair", dir, again, "--from-backup", restored)
	assert.Equal(t, 65, r.code, r.err)
	assert.Equal(t, digest, command(t, "", nil, "digest", again).out)

	other := filepath.Join(t.TempDir(), "other")
	for _, from := range []string{t.TempDir(), filepath.Join(dir, "STORE"), other} {
		r = command(t, "", nil, "repair", dir, other, "--from-backup", from)
		assert.NotZero(t, r.code, from)
		assert.NotEqual(t, 1, r.code, "%s: %s", from, r.err)
		assert.NoDirExists(t, other+".backup")
	}
}

func TestRepairOfWhatIsNoStore(t *testing.T) {
	empty := t.TempDir()
	for _, args := range [][]string{
		{empty, filepath.Join(empty, "new")}, {filepath.Join(empty, "absent"), empty}, {empty, empty},
		{empty, filepath.Join(t.TempDir(), "new"), "--partitions", "5000"},
		{empty, filepath.Join(t.TempDir(), "new"), "--report", filepath.Join(empty, "absent", "report.json")},
	} {
		r := command(t, "", nil, append([]string{"repair"}, args...)...)
		assert.Equal(t, 64, r.code, "%v: %s", args, r.err)
		assert.Empty(t, r.out)
	}
}
