package engine

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// While many reads wait for a disk that hangs, reads whose answers are in memory proceed.
func TestReadsFromMemoryGoOnBesideReadsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		keys := keysIn(e, 0, 2)
		for _, k := range keys {
			put(t, e, k, "old", memory)
		}
		require.NoError(t, e.Flush(t.Context()))
		put(t, e, keys[0], "new", memory)

		g := newGate(faultfs.Read, "*.sst")
		defer g.open()
		disk.SetInjector(g)
		var hung sync.WaitGroup
		for range 1000 {
			hung.Go(func() { requireValue(t, e, keys[1], "old") })
		}
		synctest.Wait()
		requireValue(t, e, keys[0], "new")
		g.open()
		hung.Wait()
	})
}
