package replicated

import (
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// What was fetched and is not installed goes, also if the first attempt to remove it fails, as one
// file of it may be as large as a table.
func TestWhatWasFetchedIsRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks []*faultfs.FS // in the order of the nodes
		c := startCluster(t, 1, func(o *engine.Options) {
			smallLog(o)
			disks = append(disks, faultfs.Wrap(o.FS, nil))
			o.FS = disks[len(disks)-1]
		})
		defer c.stop()
		disk, incoming := disks[0], c.nodes[0].log.checkpoints.dir+"/"+descriptor.IncomingName
		require.NoError(t, disk.MkdirAll(incoming+"/p-0000"))
		require.NoError(t, vfs.WriteNew(disk, incoming+"/p-0000/000001.sst", []byte("fetched")))
		fault := faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Remove), faultfs.OnName("000001.sst"))
		disk.SetInjector(fault)
		time.Sleep(keepIncoming + time.Second)
		require.True(t, fault.Fired())
		time.Sleep(2 * keepIncoming)
		_, err := disk.Stat(incoming)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}
