package backup

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// The name of the newest manifest may not be durable, because the process that wrote it was killed
// or its sync failed. A power cut in Prune then leaves a backup all the same.
func TestAPowerCutInPruneLeavesABackup(t *testing.T) {
	disk := newDisk(t)
	_, err := create(t.Context(), disk, newStore("STORE", "the store", "p-0000/CURRENT", "older", "p-0000/000001.sst", "older"))
	require.NoError(t, err)
	syncs := 0
	count := faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.SyncDir && op.Name == "backups" {
			syncs++
		}
		return faultfs.Fault{}
	})
	_, err = create(t.Context(), faultfs.Wrap(disk.KillImage(), count), small())
	require.NoError(t, err)
	last := faultfs.FailAt(syncs-1, syscall.EIO, false, faultfs.OnKind(faultfs.SyncDir), func(op faultfs.Op) bool { return op.Name == "backups" })
	_, err = create(t.Context(), faultfs.Wrap(disk, last), small())
	require.ErrorIs(t, err, vfs.ErrReplaced)

	d := lock(t, disk)
	disk.SetHook(func(step vfs.Step) {
		for _, policy := range vfs.CrashPolicies {
			for seed := range uint64(8) {
				image := disk.CrashImage(policy, rand.New(rand.NewPCG(seed, uint64(step.N))))
				read, err := OpenDirectory(image, "backups")
				require.NoError(t, err)
				all, err := read.Manifests()
				require.NoError(t, err)
				require.NotEmpty(t, all, "%v, step %d", policy, step.N)
				require.NoError(t, read.Verify(t.Context(), all, Options{}))
			}
		}
	})
	p, err := d.Prune(1)
	disk.SetHook(nil)
	require.NoError(t, err)
	require.Len(t, p.Backups, 1)
}
