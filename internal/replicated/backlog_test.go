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
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// The memtables of a follower are full, since its disk takes no tables. It acknowledges what the
// leader writes, which needs it, answers its heartbeats, and applies the records when there is memory.
func TestAFollowerWithoutMemoryAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks faultyDisks
		c := startCluster(t, 3, func(o *engine.Options) {
			disks.wrap(o)
			o.SegmentBytes = 1 << 20 // no node needs a checkpoint
		})
		defer c.stop()
		leader := c.leader()
		full, away := c.nodes[leader.id%3], c.nodes[(leader.id+1)%3]
		takes := make(chan struct{})
		release := sync.OnceFunc(func() { close(takes) })
		defer release()
		disks[full.id-1].SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind != faultfs.Create || !strings.Contains(op.Name, "/p-") {
				return faultfs.Fault{}
			}
			return faultfs.Fault{Delay: func() { <-takes }}
		}))
		c.cutOff(away.id)
		write := func(key, value string) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := leader.store.Put(ctx, []byte(key), []byte(value), kv.WriteOptions{})
			require.NoError(t, err, "%s: the follower has applied %d of %d entries", key, full.log.Status().Applied.Index, full.log.Status().Committed)
		}
		const writes = 60
		for i := range writes { // three times what the memtables may hold
			write(fmt.Sprint("key ", i), strings.Repeat("v", 16<<10))
		}
		status := full.log.Status()
		require.Less(t, status.Applied.Index, status.Committed, "the memtables are full")
		term := leader.log.Status().Term
		for range 10 {
			time.Sleep(time.Second)
			write("key", "value")
		}
		require.Equal(t, term, leader.log.Status().Term)
		release()
		require.Equal(t, "value", full.get("key"))
		c.lose(nil)
		require.Contains(t, c.agree(), fmt.Sprintf("key %d=v", writes-1))
	})
}
