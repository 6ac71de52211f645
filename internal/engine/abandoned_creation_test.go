package engine

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A creation that ended at any step, by an error or a kill, may be repeated with fewer partitions.
// What it left of the others goes: a store with directories above its partition count is refused.
func TestACreationIsRepeatedWithFewerPartitions(t *testing.T) {
	stride := 1
	if testsize.Reduced() {
		stride = 5
	}
	for _, sticky := range []bool{false, true} {
		for i := 0; ; i += stride {
			disk := vfs.NewMem()
			faulty := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, sticky))
			o := small(faulty)
			e, err := Open("data", o)
			if err == nil {
				err = errors.Join(err, e.Close())
			}
			if !faulty.Fired() {
				require.NoError(t, err)
				break
			}
			if _, err := disk.Stat("data/STORE"); err == nil {
				continue // with 4
			}
			for _, image := range []*vfs.Mem{disk.KillImage(), disk.CrashImage(vfs.DropAll, nil), disk.CrashImage(vfs.KeepAll, nil)} {
				o = small(image)
				o.Partitions = 2
				e, err = Open("data", o)
				require.NoError(t, err, "operation %d", i)
				put(t, e, "a", "1", synced)
				require.NoError(t, e.Close())
				e, err = Open("data", o)
				require.NoError(t, err, "operation %d", i)
				requireValue(t, e, "a", "1")
				require.NoError(t, e.Close())
				for _, name := range []string{"data/p-0002", "data/p-0003"} {
					_, err := image.Stat(name)
					require.ErrorIs(t, err, fs.ErrNotExist, "operation %d", i)
				}
			}
		}
	}
}

// A partition with data above the partition count asked for, or one whose files a creation does not
// write, is not taken for what a creation left.
func TestALostDescriptorIsNotReplacedByFewerPartitions(t *testing.T) {
	written := func(t *testing.T, flush bool) *vfs.Mem {
		disk := vfs.NewMem()
		e := open(t, unhurried(disk))
		for i := range 100 {
			put(t, e, key(i), "1", synced)
		}
		if flush {
			require.NoError(t, e.Flush(t.Context()))
		}
		require.NoError(t, e.Close())
		require.NoError(t, disk.Remove("data/STORE"))
		return disk
	}
	for name, disk := range map[string]*vfs.Mem{
		"tables": written(t, true),
		"log":    written(t, false),
		"tables without CURRENT": func() *vfs.Mem {
			disk := written(t, true)
			require.NoError(t, disk.Remove("data/p-0003/CURRENT"))
			return disk
		}(),
		"another file": func() *vfs.Mem {
			disk := vfs.NewMem()
			require.NoError(t, disk.MkdirAll("data/p-0003"))
			require.NoError(t, vfs.WriteAtomic(disk, "data/p-0003/mine", []byte("1")))
			return disk
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			before := tree(t, disk, "data/p-0003")
			o := small(disk)
			o.Partitions = 2
			_, err := Open("data", o)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			require.Equal(t, before, tree(t, disk, "data/p-0003"))
		})
	}
}

// tree returns the names in a directory.
func tree(t *testing.T, disk vfs.FS, dir string) []string {
	t.Helper()
	names, err := disk.List(dir)
	require.NoError(t, err)
	return names
}
