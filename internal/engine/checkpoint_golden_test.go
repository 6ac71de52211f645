package engine

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// goldenContents is what the backup in testdata/v1 holds.
func goldenContents() map[string]string {
	all := map[string]string{}
	for i := range 20 {
		all[key(i)] = fmt.Sprintf("in a table %d", i)
	}
	all["large"] = strings.Repeat("in a value file ", 32)
	all[key(3)], all["late"] = "in the log", "in the log too"
	delete(all, key(4))
	return all
}

// A backup that an earlier version made is restored.
func TestABackupOfFormatOneIsRestored(t *testing.T) {
	d, err := backup.OpenDirectory(vfs.OS, "../backup/testdata/v1/store")
	require.NoError(t, err)
	all, err := d.Manifests()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.NoError(t, d.Verify(t.Context(), all, backup.Options{}))
	dir := filepath.ToSlash(filepath.Join(t.TempDir(), "restored"))
	require.NoError(t, d.Restore(t.Context(), all[1], nil, dir, backup.Options{}))
	e, err := Open(dir, Options{LowDiskBytes: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.Equal(t, goldenContents(), contents(t, e))
	o := synced
	o.RequestID = kv.RequestID{ClientID: 7, Sequence: 1, Retried: true}
	require.Equal(t, e.Recovery().LastSeq, put(t, e, "late", "in the log too", o), "the log has the request id")
}

// A backup of format 2 and an archive that an earlier version made are restored, to the end
// and to a version within a micro-batch.
func TestAnArchiveOfFormatOneIsRestored(t *testing.T) {
	const golden = "../backup/testdata/v1/archived"
	a, err := backup.OpenArchive(vfs.OS, golden+"/archive")
	require.NoError(t, err)
	pieces, err := a.Pieces()
	require.NoError(t, err)
	require.Len(t, pieces, 6, "two lives, in pieces")
	d, err := backup.OpenDirectory(vfs.OS, golden+"/backups")
	require.NoError(t, err)
	m, err := d.Load("")
	require.NoError(t, err)
	require.NotEmpty(t, m.Digest)
	for end, want := range map[backup.End]map[string]string{
		{}:                         {"a": "3", "b": "4", "c": "5", "d": "6", "e": "second life"},
		backup.UpTo(m.Version + 2): {"a": "3", "b": "4", "d": "2"},
	} {
		r, err := a.Plan(pieces, m, end)
		require.NoError(t, err)
		dir := filepath.ToSlash(filepath.Join(t.TempDir(), "restored"))
		require.NoError(t, d.Restore(t.Context(), m, r, dir, backup.Options{}))
		e, err := Open(dir, Options{LowDiskBytes: 1})
		require.NoError(t, err)
		require.Equal(t, want, contents(t, e))
		require.NoError(t, e.Close())
	}
}
