package repair

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// damagedDisk has a partition that must be merged and a log that must be salvaged.
func damagedDisk(t testing.TB, h *history) *vfs.Mem {
	disk := h.disk.KillImage()
	for _, name := range []string{h.named(".sst")[0], h.named(".val")[1], h.named(".wal")[0]} {
		content := slices.Clone(h.files[name])
		content[len(content)/3] ^= 1
		replace(t, disk, name, content)
	}
	return disk
}

// Every operation of the file system fails once. A part of the damaged store that cannot be
// read is a loss that the report covers; any other error ends the repair, and leaves no store
// or a whole one.
func TestARepairAtEveryFault(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	stride := 7
	if testsize.Reduced() {
		stride = 61
	}
	failed, survived := 0, 0
	for i := 0; ; i += stride {
		disk := damagedDisk(t, h)
		before := filesOf(t, disk, damagedDir)
		fsys := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, false))
		r, err := Run(t.Context(), fsys, damagedDir, repairedDir, Options{})
		require.Equal(t, before, filesOf(t, disk, damagedDir))
		if !fsys.Fired() {
			require.NoError(t, err)
			break
		}
		if err == nil {
			survived++
			h.requireRepaired(disk, r)
			continue
		}
		failed++
		require.ErrorIs(t, err, syscall.EIO)
		if _, err := disk.Stat(descriptor.Path(repairedDir)); err == nil {
			checked, err := inspect.Check(t.Context(), disk, repairedDir, nil, nil)
			require.NoError(t, err)
			require.NoError(t, checked.Err())
		}
	}
	require.Positive(t, failed)
	if !testsize.Reduced() {
		require.Positive(t, survived, "a read of the damaged store that fails is a loss")
	}
}

// A crash at any step leaves a directory that is known as unfinished, or a whole store.
func TestARepairAtEveryCrash(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	disk := damagedDisk(t, h)
	require.NoError(t, disk.SyncDir("/"))
	whole, unfinished := 0, 0
	check := func(image *vfs.Mem) {
		if _, err := image.Stat(descriptor.Path(repairedDir)); err == nil {
			whole++
			checked, err := inspect.Check(t.Context(), image, repairedDir, nil, nil)
			require.NoError(t, err)
			require.NoError(t, checked.Err())
			return
		}
		names, err := image.List(repairedDir)
		if err != nil || len(names) == 0 {
			return
		}
		unfinished++
		foreign, err := descriptor.Foreign(image, repairedDir)
		require.NoError(t, err)
		require.Contains(t, foreign, descriptor.RepairingName)
		_, err = beginTarget(image, repairedDir, damagedDir)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
	}
	disk.SetHook(func(step vfs.Step) {
		if testsize.Reduced() && step.N%17 != 0 {
			return
		}
		for _, policy := range vfs.CrashPolicies {
			check(disk.CrashImage(policy, rand.New(rand.NewPCG(1, uint64(step.N)))))
		}
	})
	_, err := Run(t.Context(), disk, damagedDir, repairedDir, Options{})
	require.NoError(t, err)
	disk.SetHook(nil)
	check(disk.CrashImage(vfs.DropAll, nil))
	require.Positive(t, whole*unfinished)
}

// A repaired store, and the files that a repair in place replaced, survive a power cut, also in
// new directories.
func TestNewDirectoriesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	disk := inPlaceDamage(t, h)
	_, err := Run(t.Context(), disk, damagedDir, "a/b/repaired", Options{})
	require.NoError(t, err)
	image := disk.CrashImage(vfs.DropAll, nil)
	checked, err := inspect.Check(t.Context(), image, "a/b/repaired", nil, nil)
	require.NoError(t, err)
	require.NoError(t, checked.Err())

	s, err := PlanInPlace(t.Context(), disk, damagedDir, InPlaceOptions{Scratch: scratchDir})
	require.NoError(t, err)
	require.NoError(t, s.Apply(t.Context(), "c/d/aside"))
	require.NoError(t, s.Close())
	image = disk.CrashImage(vfs.DropAll, nil)
	require.Equal(t, filesOf(t, disk, "c/d/aside"), filesOf(t, image, "c/d/aside"))
}
