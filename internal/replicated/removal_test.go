package replicated

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"
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

// freed reports whether a mutex is free, or becomes so while the caller waits for nothing. Another
// goroutine may hold it and have no processor for some time. The clock does not tell how long
// that is: it stands still in a bubble.
func freed(mu *sync.Mutex) bool {
	for range 5_000_000 {
		if mu.TryLock() {
			mu.Unlock()
			return true
		}
		runtime.Gosched()
	}
	return false
}

// The loop of the consensus asks for checkpoints. So no file is removed under their lock: neither
// those of a checkpoint that is on offer no more, nor what was fetched and is not installed.
func TestNoFileIsRemovedUnderTheLockOfTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks faultyDisks
		c := startCluster(t, 3, func(o *engine.Options) {
			smallLog(o)
			o.MemtableBytes = 64 << 10 // many flushes: CompactAll then replaces tables that are on offer
			disks.wrap(o)
		})
		defer c.stop()
		var mu sync.Mutex
		var locked []string
		removed := map[string]int{}
		for i, n := range c.nodes {
			checkpoints := n.log.checkpoints
			disks[i].SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if op.Kind != faultfs.Remove {
					return faultfs.Fault{}
				}
				free := freed(&checkpoints.mu)
				mu.Lock()
				defer mu.Unlock()
				what := "table"
				if strings.Contains(op.Name, "incoming") {
					what = "incoming"
				}
				if removed[what]++; !free {
					locked = append(locked, op.Name)
				}
				return faultfs.Fault{}
			}))
		}
		leader := c.leader()
		n := c.nodes[leader.id%3]
		c.cutOff(n.id)
		c.giveUpLog(1)
		fetched := 0
		c.onFetch(func(_, _ uint64, _ string) error {
			if fetched++; fetched > 3 {
				return errors.New("the connection is lost")
			}
			return nil
		})
		c.lose(nil)
		for c.happened("checkpoint of a node", true) == 0 {
			time.Sleep(time.Second)
		}
		c.cutOff(n.id)
		require.NoError(t, leader.store.CompactAll(t.Context()))
		time.Sleep(2 * offerLease)
		for _, other := range c.nodes { // they have removed what they offered
			if other != n {
				other.stop()
			}
		}
		time.Sleep(keepIncoming) // since before its last attempt the node could fetch nothing
		mu.Lock()
		defer mu.Unlock()
		require.NotZero(t, removed["table"])
		require.NotZero(t, removed["incoming"])
		require.Empty(t, locked)
	})
}

// What was fetched and is not installed goes, also if the first attempt to remove it fails, as one
// file of it may be as large as a table.
func TestWhatWasFetchedIsRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks faultyDisks
		c := startCluster(t, 1, func(o *engine.Options) {
			smallLog(o)
			disks.wrap(o)
		})
		defer c.stop()
		disk, incoming := disks[0], c.nodes[0].log.checkpoints.dir+"/"+descriptor.IncomingName
		require.NoError(t, disk.MkdirAll(incoming+"/p-0000"))
		require.NoError(t, vfs.WriteNew(disk, incoming+"/p-0000/000001.sst", []byte("fetched")))
		fault := faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Remove), faultfs.OnName("000001.sst"))
		disk.SetInjector(fault)
		time.Sleep(keepIncoming + time.Second)
		require.True(t, fault.Fired())
		time.Sleep(keepIncoming)
		_, err := disk.Stat(incoming)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}
