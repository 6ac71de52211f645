package engine

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A ballast whose making ended after space was reserved, and before the file had its length, is
// given back when the space is needed: by a kill, or by an error after which it could not be removed.
func TestAHalfMadeBallastIsGivenBack(t *testing.T) {
	full := func(t *testing.T, disk *vfs.Mem) {
		usage, err := disk.Usage("data")
		require.NoError(t, err)
		disk.SetCapacity(int64(usage.Total - usage.Free))
	}
	gone := func(t *testing.T, disk *vfs.Mem) {
		_, err := disk.Stat(descriptor.BallastPath("data"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		usage, err := disk.Usage("data")
		require.NoError(t, err)
		require.GreaterOrEqual(t, usage.Free, uint64(64<<10))
	}
	t.Run("kill", func(t *testing.T) {
		disk := vfs.NewMem()
		disk.SetCapacity(64 << 20)
		require.NoError(t, open(t, fullOptions(disk)).Close())
		require.NoError(t, vfs.RemoveIfThere(disk, descriptor.BallastPath("data")))
		f, err := disk.Create(descriptor.BallastPath("data"))
		require.NoError(t, err)
		require.NoError(t, f.Reserve(0, 64<<10))
		disk = disk.KillImage()
		full(t, disk)
		e := open(t, fullOptions(disk))
		gone(t, disk)
		require.NoError(t, e.Close())
	})
	t.Run("errors", func(t *testing.T) {
		disk := vfs.NewMem()
		disk.SetCapacity(64 << 20)
		require.NoError(t, disk.MkdirAll("data"))
		name := descriptor.BallastPath("data")
		faulty := faultfs.Wrap(disk, nil)
		b, err := openBallast(faulty, name, 64<<10)
		require.NoError(t, err)
		usage, err := disk.Usage("data")
		require.NoError(t, err)
		b.bound(usage)
		faulty.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if _, err := disk.Stat(name); err == nil && (op.Kind == faultfs.Truncate || op.Kind == faultfs.Remove) {
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		}))
		require.ErrorIs(t, b.make(), syscall.EIO)
		require.Positive(t, b.missing())
		faulty.SetInjector(nil)
		full(t, disk)
		gave, err := b.giveBack()
		require.NoError(t, err)
		require.True(t, gave)
		gone(t, disk)
	})
}
