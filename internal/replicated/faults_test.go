package replicated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Nodes are cut off, lose power in the middle of anything and flush, while callers write keys
// that must be absent. Each write happens once, what was acknowledged stays, and all nodes end
// with the same state.
func TestRandomFaults(t *testing.T) {
	seeds := uint64(6)
	if testsize.Reduced() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomFaults(t *testing.T, rng *rand.Rand) {
	c := startCluster(t, 3, func(o *engine.Options) {
		o.MemtableBytes = 64 << 10
		o.SegmentBytes = 8 << 10 // so that nodes need checkpoints
	})
	defer c.stop()
	done := make(chan struct{})
	var callers sync.WaitGroup
	acknowledged := make([]int, 3)
	for client := range acknowledged {
		callers.Go(func() {
			for c.insist(done, client, acknowledged[client]) {
				acknowledged[client]++
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for range 8 {
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
		c.installAll()
		n := c.nodes[rng.IntN(len(c.nodes))]
		switch rng.IntN(4) {
		case 0:
			c.cutOff(n.id)
			time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
			c.lose(nil)
		case 1:
			if err := n.now().Flush(t.Context()); !errors.Is(err, replica.ErrInstall) {
				require.NoError(t, err)
			}
		default:
			n.crashSoon(rng)
			time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
			n.start()
		}
	}
	close(done)
	callers.Wait()
	for _, n := range c.nodes {
		n.catchUp()
	}
	state := c.agree()
	t.Logf("%d checkpoints", c.happened("received", false))
	for client, n := range acknowledged {
		require.NotZero(t, n)
		for i := range n {
			require.Contains(t, state, fmt.Sprintf("client %d write %d=", client, i))
		}
	}
}

// The test of the tests: a leader that loses power before it writes an entry still commits it
// with what the other node answers, but a client has not received that.
func TestWhatADeadNodeAcknowledgesDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		begun := atomic.Bool{}
		leader.fs.SetHook(func(vfs.Step) {
			if begun.CompareAndSwap(false, true) { // no other step waits for this one: the time would stand still
				time.Sleep(time.Second) // until the entry has been sent
				leader.powerFails()
			}
		})
		put := func(store *engine.Engine) error {
			_, err := store.Put(t.Context(), []byte("key"), []byte("value"), kv.WriteOptions{})
			return err
		}
		require.ErrorIs(t, leader.acknowledges(put), kv.ErrUncertain)
		leader.fs.SetHook(nil)
		leader.crash()
		leader.start()
		require.NoError(t, c.leader().acknowledges(put))
		c.agree()
	})
}

// installAll starts the nodes again that have received a checkpoint.
func (c *cluster) installAll() {
	for _, n := range c.nodes {
		if errors.Is(n.store.Err(), replica.ErrInstall) {
			n.install()
		}
	}
}

// crashSoon loses the node's power before one of its next steps on the disk.
func (n *node) crashSoon(rng *rand.Rand) {
	policy := vfs.CrashPolicies[rng.IntN(len(vfs.CrashPolicies))]
	left, mu := rng.IntN(200), sync.Mutex{}
	image := make(chan *vfs.Mem, 1)
	n.fs.SetHook(func(vfs.Step) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == -1 {
			n.powerFails()
			image <- n.fs.CrashImage(policy, rng)
		}
	})
	select {
	case fs := <-image:
		n.stop()
		n.fs = fs
	case <-time.After(5 * time.Second):
		n.fs.SetHook(nil)
		n.crash()
	}
}

// insist writes a key that must be absent, on one node after the other, until one of
// them says that it is written. It reports false if it was not, and done is closed.
func (c *cluster) insist(done chan struct{}, client, i int) bool {
	for attempt := 0; ; attempt++ {
		select {
		case <-done:
			return false
		default:
		}
		w := &kv.Write{
			Op: kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "client %d write %d", client, i), Value: []byte(strings.Repeat("x", 2000))}, If: &kv.Condition{Kind: kv.IfAbsent},
			RequestID: kv.RequestID{ClientID: uint64(client + 1), Sequence: uint64(i + 1), Retried: attempt > 0},
		}
		err := c.nodes[attempt%len(c.nodes)].acknowledges(func(store *engine.Engine) error {
			ctx, cancel := context.WithTimeout(c.t.Context(), 500*time.Millisecond)
			defer cancel()
			return errors.Join(store.Write(ctx, []*kv.Write{w}), w.Err)
		})
		switch {
		case err == nil:
			return true
		case errors.Is(err, kv.ErrUncertain), errors.Is(err, kv.ErrNotLeader), errors.Is(err, kv.ErrClosed), errors.Is(err, context.DeadlineExceeded),
			errors.Is(err, replica.ErrInstall):
		default:
			c.t.Errorf("client %d write %d attempt %d: %v", client, i, attempt, err)
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A node loses power at any step of a flush. It continues from a place that is not above what
// its tables hold.
func TestAPositionIsNeverAheadOfTheTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, func(o *engine.Options) { o.SegmentBytes = 4 << 10 }) // so positions move soon
		defer c.stop()
		n := c.nodes[c.leader().id%3]
		for round := range 2 { // the first flush of each partition, and a later one
			leader := c.leader()
			for i := range 200 { // what is lost is not written again
				leader.put(fmt.Sprintf("key %d of round %d", i, round), strings.Repeat("v", 60))
			}
			c.agree()
			var images []*vfs.Mem
			var mu sync.Mutex
			n.fs.SetHook(func(vfs.Step) {
				mu.Lock()
				defer mu.Unlock()
				images = append(images, n.fs.CrashImage(vfs.DropAll, nil))
			})
			require.NoError(t, n.store.Flush(t.Context()))
			n.fs.SetHook(nil)
			synctest.Wait()
			images = append(images, n.fs.CrashImage(vfs.DropAll, nil))
			n.stop()
			every := 2
			if testsize.Reduced() {
				every = 9
			}
			for i := round % every; i < len(images); i += every {
				n.fs = images[i]
				n.start()
				c.agree()
				n.stop()
			}
			n.fs = images[len(images)-1]
			n.start()
		}
	})
}

// A node restarts without a connection, so it knows less to be committed than some of its
// partitions have flushed. The others do not take that for what they hold.
func TestAPositionIsSavedForWhatWasApplied(t *testing.T) {
	for !knowsLessAfterARestart(t) {
	}
}

// knowsLessAfterARestart is that test, and reports whether the node knew less. It does not if the last entry
// came to it together with the news that it is committed, as when it was busy.
func knowsLessAfterARestart(t *testing.T) (less bool) {
	synctest.Test(t, func(t *testing.T) {
		segment := int64(1 << 20) // no position is saved before the restart
		c := startCluster(t, 3, func(o *engine.Options) { o.MemtableBytes, o.SegmentBytes = 64<<10, segment })
		defer c.stop()
		leader := c.leader()
		n := c.nodes[leader.id%3]
		busy, idle := keyOf(0), keyOf(1)
		for i := range 20 { // more than a segment of the log has after the restart
			leader.put(busy, fmt.Sprint(i, strings.Repeat("v", 3500)))
		}
		var b kv.WriteBatch
		b.Put([]byte(idle), []byte("must stay"))
		b.Put([]byte(busy), []byte(strings.Repeat("w", 36<<10))) // fills a memtable
		_, err := leader.store.Apply(t.Context(), &b, kv.WriteOptions{})
		require.NoError(t, err)
		require.Equal(t, "must stay", n.get(idle))
		synctest.Wait()
		stats := n.store.Stats()
		require.NotZero(t, stats.Partitions[0].Flushes)
		require.Zero(t, stats.Partitions[1].Flushes)

		applied := n.log.Status().Applied.Index
		n.crash()
		segment = 32 << 10
		c.cutOff(n.id)
		n.start()
		time.Sleep(3 * time.Second) // in which positions are saved
		less = n.log.Status().Applied.Index < applied
		c.lose(nil)
		require.Contains(t, c.agree(), idle+"=must stay")
		n.stop()
		n.start()
		require.Contains(t, c.agree(), idle+"=must stay")
	})
	return less
}

// keyOf returns a key of a partition of the stores of these tests.
func keyOf(partition int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key ", i); keyhash.Partition(keyhash.Sum([]byte(key)), 3) == partition {
			return key
		}
	}
}
