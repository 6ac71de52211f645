package repair

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

const backupDir = "backup"

// copyStore copies the files of a closed store to the directory of a backup.
func copyStore(t testing.TB, disk *vfs.Mem, files map[string][]byte) {
	for name, content := range files {
		name = backupDir + strings.TrimPrefix(name, damagedDir)
		require.NoError(t, disk.MkdirAll(path.Dir(name)))
		f, err := disk.Create(name)
		require.NoError(t, err)
		_, err = f.WriteAt(content, 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}
}

// newBackedUp returns a store with a backup: in that, keys are deleted, whose tombstones a
// merge has dropped, and which an older table of the store still has.
func newBackedUp(t testing.TB) (h *history, backedUp kv.SeqNum) {
	h = newHistory(t)
	h.open()
	for i := 50; i < 90; i += 3 {
		h.del(i)
	}
	h.delRange(250, 260)
	h.put(255, "backed up")
	require.NoError(t, h.e.Flush(t.Context()))
	h.put(256, "backed up")
	h.close()
	backedUp = h.writes[len(h.writes)-1].version
	files := filesOf(t, h.disk, damagedDir)
	h.open()
	for i := 80; i < 120; i++ {
		h.put(i, "later")
	}
	require.NoError(t, h.e.Flush(t.Context()))
	h.put(300, "later")
	h.close()
	h.closed()
	copyStore(t, h.disk, files)
	return h, backedUp
}

// Whatever is damaged, everything up to the version of the backup is there, and the report
// covers what may be missing of later versions.
func TestLostKeysAreFilledFromABackup(t *testing.T) {
	t.Parallel()
	h, backedUp := newBackedUp(t)
	filled := uint64(0)
	for _, kind := range []string{".wal", ".sst", ".val", manifest.CurrentName, "MANIFEST-"} {
		for i, name := range h.named(kind) {
			if i == 1 && testsize.Reduced() {
				break
			}
			for _, at := range []int{-1, len(h.files[name]) / 5} {
				disk := h.disk.KillImage()
				var content []byte
				if at >= 0 {
					content = slices.Clone(h.files[name])
					content[at] ^= 4
				}
				replace(t, disk, name, content)
				before := filesOf(t, disk, backupDir)
				r := h.judge(disk, Options{Backup: backupDir})
				require.Equal(t, before, filesOf(t, disk, backupDir))
				require.Equal(t, backedUp, r.BackupVersion)
				for _, l := range r.Losses {
					require.Greater(t, l.FirstVersion, backedUp, "%s: %+v", name, l)
				}
				filled += r.Filled
			}
		}
	}
	require.Positive(t, filled)
}

// A write later than the backup is lost, and a merge has dropped the one that it replaced: the
// key shows what the backup has. So does a key that was deleted since, which the report says.
func TestABackupHasWhatALostWriteReplaced(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{".sst", ".val"} {
		h := &history{t: t, disk: vfs.NewMem()}
		h.open()
		for i := range 60 {
			h.put(i, "backed up")
		}
		h.close()
		files := filesOf(t, h.disk, damagedDir)
		h.open()
		for i := range 60 {
			h.put(i, "later")
		}
		for i := 1; i < 60; i += 5 {
			h.del(i) // a merge drops that too
		}
		require.NoError(t, h.e.CompactAll(t.Context()))
		h.close()
		h.open() // the log goes on in another segment
		require.NoError(t, h.e.RewriteLog(t.Context()))
		h.close()
		h.closed()
		copyStore(t, h.disk, files)
		for _, name := range h.named(kind) {
			replace(t, h.disk, name, nil)
		}
		r := h.judge(h.disk, Options{Backup: backupDir})
		require.Positive(t, r.Filled, kind)
		for i := 0; i < 60; i += 5 {
			require.True(t, h.hasKey(keyOf(i)), "%s: %q", kind, keyOf(i))
		}
	}
}

// hasKey reports whether the new store has a key.
func (h *history) hasKey(key string) bool {
	o := testOptions(h.disk)
	o.ReadOnly, o.Partitions = true, 0
	e, err := engine.Open(repairedDir, o)
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, e.Close()) }()
	_, err = e.Get(h.t.Context(), []byte(key))
	if !errors.Is(err, kv.ErrNotFound) {
		require.NoError(h.t, err)
	}
	return err == nil
}

// A key that was deleted before the backup, and whose tombstone only the lost table had,
// stays deleted.
func TestABackupKeepsDeletedKeysDeleted(t *testing.T) {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range 60 {
		h.put(i, "first")
	}
	require.NoError(t, h.e.CompactAll(t.Context()))
	for i := range 20 {
		h.del(i)
	}
	require.NoError(t, h.e.Flush(t.Context()))
	h.close()
	h.closed()
	compacted := h.disk.KillImage()
	original := h.disk
	h.disk = compacted
	h.open()
	require.NoError(t, h.e.CompactAll(t.Context()))
	h.close()
	backup := filesOf(t, compacted, damagedDir)
	h.disk = original
	disk := original.KillImage()
	copyStore(t, disk, backup)
	for _, name := range append(h.named("MANIFEST-"), h.named(".wal")...) {
		replace(t, disk, name, nil)
	}
	for id := range partitions { // the deltas with the tombstones
		names := h.named(".sst")
		slices.Reverse(names)
		i := slices.IndexFunc(names, func(name string) bool {
			return strings.HasPrefix(name, descriptor.PartitionDir(damagedDir, id)+"/")
		})
		replace(t, disk, names[i], nil)
	}
	require.Positive(t, h.judge(disk, Options{Backup: backupDir}).Filled)
}

// A store that was put back from an older copy ends before the backup, which may have of a lost key
// only what was written since: a write that this store never had.
func TestABackupThatIsNewerThanTheStoreIsRefused(t *testing.T) {
	h, _ := newBackedUp(t)
	disk := h.disk.KillImage()
	older := filesOf(t, disk, backupDir)
	require.NoError(t, removeTree(disk, backupDir))
	require.NoError(t, removeTree(disk, damagedDir))
	copyStore(t, disk, h.files)
	for name, content := range older {
		name = damagedDir + strings.TrimPrefix(name, backupDir)
		if path.Ext(name) == ".sst" {
			content[len(content)/3] ^= 1
		}
		replaceAt(t, disk, name, content)
	}
	_, err := Run(t.Context(), disk, damagedDir, repairedDir, Options{Backup: backupDir})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "the store is older")
	_, err = repairInPlace(t, disk, backupDir, false)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "the store is older")
}

// A backup of another store, or one that is damaged, is refused.
func TestABackupMustBeWholeAndOfTheStore(t *testing.T) {
	h, _ := newBackedUp(t)
	disk := h.disk.KillImage()
	_, err := Run(t.Context(), disk, damagedDir, "a", Options{Backup: "absent"})
	require.ErrorContains(t, err, "open the backup")

	d := descriptor.Descriptor{StoreID: 1, Partitions: partitions}
	replace(t, disk, descriptor.Path(backupDir), d.Encode())
	_, err = Run(t.Context(), disk, damagedDir, "b", Options{Backup: backupDir})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "the backup is of store")

	for _, kind := range []string{".wal", ".sst", ".val"} {
		disk := h.disk.KillImage()
		for _, name := range h.named(kind) {
			replace(t, disk, name, nil) // so that the backup is needed
			name = backupDir + strings.TrimPrefix(name, damagedDir)
			if _, err := disk.Stat(name); err == nil {
				content := contentOf(t, disk, name)
				content[len(content)/3] ^= 1
				replace(t, disk, name, content)
			}
		}
		_, err = Run(t.Context(), disk, damagedDir, repairedDir, Options{Backup: backupDir})
		require.ErrorIs(t, err, kv.ErrCorrupt, kind)
		require.ErrorContains(t, err, "read the backup", kind)
	}
}
