package replicated

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A leader that is about to stop lets another node lead; one that is not, or is alone, does not.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		old.put("key", "value")
		next, err := old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, old.id, next)
		require.Equal(t, next, c.leader().id)
		require.Equal(t, "value", c.leader().get("key"))
		next, err = old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.Zero(t, next, "it does not lead")
	})
	synctest.Test(t, func(t *testing.T) { // a change of the configuration is under way
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		c.cutOff(old.id)
		described := make(chan error, 1)
		go func() { described <- old.log.Describe(t.Context(), old.id, Node{Client: "here:1"}) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), 2*replica.TickInterval)
		defer cancel()
		_, err := old.log.HandOver(short)
		require.Error(t, err)
		c.lose(nil)
		next, err := old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, old.id, next)
		require.NoError(t, <-described)
	})
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		_, err := c.leader().log.HandOver(t.Context())
		require.ErrorContains(t, err, "no other voter answers")
	})
}

// While the leadership goes from node to node, a write is acknowledged or has done nothing: none has an
// unknown outcome.
func TestAHandOverLeavesNoWriteUncertain(t *testing.T) {
	for _, size := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			slower := time.Millisecond // each disk is
			c := startCluster(t, size, func(o *engine.Options) {
				slower += 300 * time.Microsecond
				sync := slower
				o.FS = faultfs.Wrap(o.FS, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
					if op.Kind != faultfs.Sync {
						return faultfs.Fault{}
					}
					return faultfs.Fault{Delay: func() { time.Sleep(sync) }}
				}))
			})
			defer c.stop()
			c.leader()
			ended := make(chan struct{})
			var writers sync.WaitGroup
			for i := range 30 {
				writers.Go(func() {
					for turn := 0; ; turn++ {
						select {
						case <-ended:
							return
						case <-time.After(time.Duration(200+97*i) * time.Microsecond):
						}
						for _, n := range c.nodes {
							_, err := n.store.Put(t.Context(), fmt.Appendf(nil, "%d/%d", i, turn), nil, kv.WriteOptions{})
							if err == nil {
								break
							}
							assert.NotErrorIs(t, err, kv.ErrUncertain)
							assert.ErrorIs(t, err, kv.ErrNotLeader)
						}
					}
				})
			}
			turns := 30
			if testsize.Reduced() {
				turns = 10
			}
			for i := range turns {
				time.Sleep(time.Duration(7300+130*i) * time.Microsecond)
				_, err := c.leader().log.HandOver(t.Context())
				require.NoError(t, err)
			}
			close(ended)
			writers.Wait()
			c.agree()
		})
	}
}
