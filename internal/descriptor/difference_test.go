package descriptor

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A store that is noted to differ is refused, however long the reason is.
func TestANodeThatDiffersIsRefused(t *testing.T) {
	for _, why := range []string{"at version 7", "", strings.Repeat("x", 3*maxDiffersBytes)} {
		disk := vfs.NewMem()
		require.NoError(t, disk.MkdirAll("data"))
		require.NoError(t, disk.SyncDir("/"))
		require.NoError(t, CheckSame(disk, "data"))
		require.NoError(t, NoteDifference(disk, "data", why))
		err := CheckSame(disk.CrashImage(vfs.DropAll, nil), "data")
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorIs(t, err, ErrDiffers)
		require.ErrorContains(t, err, why[:min(len(why), 100)])
		require.Less(t, len(err.Error()), 2*maxDiffersBytes)
		require.ErrorIs(t, CheckSame(faultfs.Wrap(disk, faultfs.FailAt(0, syscall.EIO, false)), "data"), syscall.EIO)
	}
}
