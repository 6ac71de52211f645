package replicated

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// writeOn writes by whichever node leads until stopped is closed.
func (c *cluster) writeOn(stopped chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stopped:
			return
		case <-time.After(50 * time.Millisecond):
		}
		for _, n := range c.nodes {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			_, err := n.now().Put(ctx, fmt.Appendf(nil, "key %d", i), []byte("value"), kv.WriteOptions{})
			cancel()
			if err == nil {
				break
			}
		}
	}
}

// A leader whose disk is slow for ten seconds lets another node lead; one whose disk is slow now
// and then does not.
func TestASlowLeaderHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks faultyDisks
		c := startCluster(t, 3, disks.wrap)
		defer c.stop()
		leader := c.leader()
		stopped := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() { c.writeOn(stopped) })
		slow := func(every int) {
			syncs := 0
			disks[leader.id-1].SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if op.Kind != faultfs.Sync || !strings.HasSuffix(op.Name, ".raft") {
					return faultfs.Fault{}
				}
				if syncs++; syncs%every != 0 {
					return faultfs.Fault{}
				}
				return faultfs.Fault{Delay: func() { time.Sleep(600 * time.Millisecond) }}
			}))
		}
		slow(3)
		time.Sleep(20 * time.Second)
		require.Equal(t, leader.id, leader.log.Status().Leader)
		require.Zero(t, leader.log.HandOvers()[slowDisk])
		slow(1)
		time.Sleep(20 * time.Second)
		require.NotEqual(t, leader.id, leader.log.Status().Leader)
		require.EqualValues(t, 1, leader.log.HandOvers()[slowDisk])
		close(stopped)
		writer.Wait()
		disks[leader.id-1].SetInjector(nil)
		c.agree()
	})
}

// A leader whose disk is nearly full lets another node lead, which takes writes.
func TestAFullLeaderHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan HandOver, 9)
		c := startCluster(t, 3, func(o *engine.Options) {
			o.LowDiskBytes = 1 << 20
			o.Replicated.(*Log).config.HandedOver = func(h HandOver) { told <- h }
		})
		defer c.stop()
		leader := c.leader()
		leader.put("before", "x")
		usage, err := leader.fs.Usage("data")
		require.NoError(t, err)
		leader.fs.SetCapacity(int64(usage.Total-usage.Free) + 512<<10)
		next := c.leader(leader.id)
		next.put("after", "y")
		h := <-told
		require.Equal(t, fullDisk, h.Reason)
		require.NotEmpty(t, h.Why)
		require.NoError(t, h.Err)
		require.Equal(t, next.id, h.Leader)
		require.EqualValues(t, 1, leader.log.HandOvers()[fullDisk])
		require.NoError(t, leader.store.Err())
		require.Equal(t, "y", leader.get("after"))
	})
}

func TestSlowness(t *testing.T) {
	var s slowness
	var counts histogram.PowerCounts
	at := time.Now()
	note := func(seconds int, micros ...uint64) time.Duration {
		for _, m := range micros {
			counts.Record(m)
		}
		at = at.Add(time.Duration(seconds) * time.Second)
		return s.note(at, counts)
	}
	const slow, quick = 600_000, 100_000
	require.Zero(t, note(1))
	require.Zero(t, note(1, quick, slow), "the first one")
	require.Equal(t, 3*time.Second, note(3, slow))
	require.Zero(t, note(5), "there was none")
	require.Equal(t, 9*time.Second, note(1, slow, slow))
	require.Zero(t, note(1, slow, quick, slow))
	require.Equal(t, 2*time.Second, note(2, slow))
	require.Zero(t, note(1, quick))
	require.Zero(t, note(1, slow))
}
