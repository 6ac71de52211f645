package replicated

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// The disk of a member gets full while it makes a checkpoint for a backup: it holds the files of its
// partitions, and waits for the other nodes. The call returns why the checkpoint ended.
func TestABackupOfAMemberThatEndsWhileItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const low = 1 << 20
		var disks []*faultfs.FS
		c := startCluster(t, 3, func(o *engine.Options) {
			disk := faultfs.Wrap(o.FS, nil)
			disks = append(disks, disk)
			o.FS, o.LowDiskBytes = disk, low
		})
		defer c.stop()
		c.fill(0, 60)
		n := c.follower()
		cut := sync.OnceFunc(func() { c.cutOff(n.id) })
		disks[n.id-1].SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind == faultfs.Create && faultfs.OnName("*.sst")(op) {
				cut() // the first flush: from now on the others do not answer
			}
			return faultfs.Fault{}
		}))
		made := make(chan error, 1)
		go func() {
			_, err := n.store.Checkpoint(t.Context(), 0)
			made <- err
		}()
		time.Sleep(time.Second)
		require.Equal(t, 1, n.store.Stats().Checkpoints)
		require.Empty(t, made, "it waits for the others")

		usage, err := n.fs.Usage("data")
		require.NoError(t, err)
		n.fs.SetCapacity(int64(usage.Total-usage.Free) + low/2)
		time.Sleep(3 * time.Second)
		require.Zero(t, n.store.Stats().Checkpoints)
		c.lose(nil)
		require.ErrorIs(t, <-made, kv.ErrVersionGone)
		assert.Zero(t, n.store.Stats().Snapshots)
	})
}
