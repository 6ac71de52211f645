package replicated

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
)

// What the leader acknowledged can be read on every node at once, and all have the same state
// at the same version.
func TestThreeStoresAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		for i, level := range []kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync} {
			key := fmt.Sprintf("key %d", i)
			_, err := leader.store.Put(t.Context(), []byte(key), []byte("value"), kv.WriteOptions{Durability: level})
			require.NoError(t, err)
			for _, n := range c.nodes {
				require.Equal(t, "value", n.get(key), "%v on node %d", level, n.id)
			}
		}
		var b kv.WriteBatch
		for i := range 20 {
			b.Put(fmt.Appendf(nil, "batch %d", i), []byte("x"))
		}
		b.Delete([]byte("key 0"))
		_, err := leader.store.Apply(t.Context(), &b, kv.WriteOptions{})
		require.NoError(t, err)
		_, err = leader.store.DeleteRange(t.Context(), kv.Range{Start: []byte("batch 1"), End: []byte("batch 2")}, kv.WriteOptions{})
		require.NoError(t, err)
		for _, n := range c.nodes {
			require.Empty(t, n.get("key 0"))
			require.Empty(t, n.get("batch 15"))
			require.Equal(t, "x", n.get("batch 9"))
		}
		c.agree()

		follower := c.follower()
		var refused *kv.NotLeaderError
		_, err = follower.store.Put(t.Context(), []byte("key"), []byte("value"), kv.WriteOptions{})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, leader.id, refused.Leader)
		require.ErrorIs(t, err, kv.ErrNotLeader)
		require.NotErrorIs(t, err, kv.ErrUncertain)
		_, err = follower.store.Apply(t.Context(), &b, kv.WriteOptions{})
		require.ErrorIs(t, err, kv.ErrNotLeader)
		require.ErrorIs(t, follower.store.Write(t.Context(), []*kv.Write{{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k")}}}), kv.ErrNotLeader)
		require.Empty(t, follower.get("key"))
	})
}

// Conditions, transactions and snapshots work on the leader as they do on a single node, and
// snapshots on the others.
func TestTransactionsOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader, follower := c.leader(), c.follower()
		absent := func(key string) *kv.Write {
			return &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte("first")}, If: &kv.Condition{Kind: kv.IfAbsent}}
		}
		once, twice := absent("a"), absent("a")
		require.NoError(t, leader.store.Write(t.Context(), []*kv.Write{once}))
		require.NoError(t, once.Err)
		require.NoError(t, leader.store.Write(t.Context(), []*kv.Write{twice}))
		require.ErrorIs(t, twice.Err, kv.ErrConditionFailed)

		before, err := follower.store.BeginSnapshot(t.Context(), 0)
		require.NoError(t, err)
		snapshot, err := leader.store.BeginSnapshot(t.Context(), 0)
		require.NoError(t, err)
		transaction := func(key string) error {
			var b kv.WriteBatch
			b.Put([]byte(key), []byte("of a transaction"))
			b.Put([]byte("sum of "+key), []byte("1"))
			_, err := leader.store.Commit(t.Context(), &kv.Transaction{
				ReadVersion: snapshot.Version, Epoch: snapshot.Epoch, Keys: [][]byte{[]byte("a")}, Batch: &b,
			}, kv.WriteOptions{})
			return err
		}
		require.NoError(t, transaction("b"))
		leader.put("a", "second")
		require.ErrorIs(t, transaction("c"), kv.ErrConflict)
		ok, _, err := leader.store.Execute(t.Context(), []kv.Guard{{Key: []byte("a"), Condition: kv.Condition{Kind: kv.IfValue, Value: []byte("second")}}}, batch("d", "executed"), nil, kv.WriteOptions{})
		require.NoError(t, err)
		require.True(t, ok)

		for _, n := range c.nodes {
			require.Equal(t, "of a transaction", n.get("b"))
			require.Empty(t, n.get("c"))
			require.Equal(t, "executed", n.get("d"))
		}
		for at, n := range map[kv.SeqNum]*node{snapshot.Version: leader, before.Version: follower} {
			r := &kv.Lookup{Key: []byte("a")}
			_, err = n.store.LookupAt(t.Context(), []*kv.Lookup{r}, at)
			require.NoError(t, err)
			require.Equal(t, "first", string(r.Value), "node %d", n.id)
		}
		c.agree()
	})
}

func batch(key, value string) *kv.WriteBatch {
	b := &kv.WriteBatch{}
	b.Put([]byte(key), []byte(value))
	return b
}

// The time of expiry is the same on all nodes, and goes back over no change of the leader.
func TestKeysExpireOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		idle, _ := leader.digest()
		time.Sleep(3 * time.Second)
		still, _ := leader.digest()
		require.Equal(t, idle, still, "without keys that expire, no entries set the clock")
		_, err := leader.store.Apply(t.Context(), expiring("short", leader.store.Now()+3000), kv.WriteOptions{})
		require.NoError(t, err)
		_, err = leader.store.Apply(t.Context(), expiring("long", leader.store.Now()+3_600_000), kv.WriteOptions{})
		require.NoError(t, err)
		for _, n := range c.nodes {
			require.Equal(t, "value", n.get("short"))
		}
		time.Sleep(4500 * time.Millisecond)
		for _, n := range c.nodes {
			require.Empty(t, n.get("short"), "node %d", n.id)
			require.Equal(t, "value", n.get("long"))
		}
		c.cutOff(leader.id)
		next := c.leader(leader.id)
		require.Empty(t, next.get("short"))
		c.lose(nil)
		for _, n := range c.nodes {
			require.Empty(t, n.get("short"), "node %d", n.id)
			require.Equal(t, "value", n.get("long"))
		}
		c.agree()
	})
}

func expiring(key string, expiry uint64) *kv.WriteBatch {
	b := &kv.WriteBatch{}
	b.Add(kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte("value"), Expiry: expiry})
	return b
}

// A leader that is cut off acknowledges nothing more and answers no reads. What it had sent is
// committed by the next one, which recognises the requests.
func TestAChangeOfTheLeaderKeepsRequestsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		old.put("before", "acknowledged")
		seen, _ := old.digest()

		// Its messages arrive, and no answers: the records are in all logs and not committed.
		c.lose(func(_, to uint64, _ *pb.Message) bool { return to == old.id })
		var callers sync.WaitGroup
		firsts := make([]*kv.Write, 12)
		for i := range firsts {
			firsts[i] = onlyOnce(i)
			callers.Go(func() { _ = old.store.Write(t.Context(), []*kv.Write{firsts[i]}) })
		}
		synctest.Wait()
		var b kv.WriteBatch
		for i := range 9 {
			b.Put(fmt.Appendf(nil, "batch %d", i), []byte("whole"))
		}
		batched := make(chan error, 1)
		go func() {
			_, err := old.store.Apply(t.Context(), &b, kv.WriteOptions{RequestID: kv.RequestID{ClientID: 2, Sequence: 1}})
			batched <- err
		}()
		synctest.Wait()
		c.cutOff(old.id)
		late := make(chan error, 1) // never leaves the old leader
		go func() {
			_, err := old.store.Apply(t.Context(), batch("late", "lost"), kv.WriteOptions{RequestID: kv.RequestID{ClientID: 2, Sequence: 2}})
			late <- err
		}()
		ctx, giveUp := context.WithTimeout(t.Context(), 5*time.Second)
		defer giveUp()
		_, err := old.store.Get(ctx, []byte("before"))
		require.ErrorIs(t, err, context.DeadlineExceeded, "it cannot know whether that is the newest")

		next := c.leader(old.id)
		callers.Wait()
		for _, w := range firsts {
			require.ErrorIs(t, w.Err, kv.ErrUncertain)
		}
		require.ErrorIs(t, <-batched, kv.ErrUncertain)
		require.ErrorIs(t, <-late, kv.ErrUncertain)
		require.Equal(t, "acknowledged", next.get("before"))
		for i := range 9 {
			require.Equal(t, "whole", next.get(fmt.Sprintf("batch %d", i)))
		}
		for i, first := range firsts {
			w := onlyOnce(i)
			w.RequestID.Retried, w.RequestID.KnownVersion = true, seen
			require.NoError(t, next.store.Write(t.Context(), []*kv.Write{w}))
			require.NoError(t, w.Err, "it was applied by its first attempt")
			require.True(t, w.Deduplicated)
			require.Zero(t, first.Version)
		}
		version, err := next.store.Apply(t.Context(), batch("late", "lost"), kv.WriteOptions{RequestID: kv.RequestID{ClientID: 2, Sequence: 2, Retried: true, KnownVersion: seen}})
		require.NoError(t, err)

		c.lose(nil)
		require.Contains(t, c.agree(), fmt.Sprintf("late=lost @%d", version))

		// The old one leads again, and knows the same requests.
		next.log.Transfer(old.id)
		time.Sleep(2 * time.Second)
		require.Equal(t, old, c.leader())
		deduplicated := false
		again, err := old.store.Apply(t.Context(), batch("late", "lost"), kv.WriteOptions{
			RequestID: kv.RequestID{ClientID: 2, Sequence: 2, Retried: true, KnownVersion: seen}, Deduplicated: &deduplicated,
		})
		require.NoError(t, err)
		require.True(t, deduplicated, "the attempt in its own first term was lost, that on the other node was not")
		require.Equal(t, version, again)
		old.put("after", "acknowledged")
		c.agree()
	})
}

// A condition fails on a leader that is cut off, because of the first attempt. When the node can
// answer again it no longer leads, so it does not say that the write did not happen.
func TestARetryIsNotRefusedByAnEarlierLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		first, again := onlyOnce(0), onlyOnce(0)
		require.NoError(t, old.store.Write(t.Context(), []*kv.Write{first}))
		require.NoError(t, first.Err)
		c.cutOff(old.id)
		again.RequestID.Retried = true
		done := make(chan error, 1)
		go func() { done <- old.store.Write(t.Context(), []*kv.Write{again}) }()
		next := c.leader(old.id)
		next.put("other", "value")
		time.Sleep(2 * time.Second) // the old one notices that it does not lead
		require.Empty(t, done)
		c.lose(nil)
		require.NoError(t, <-done)
		require.ErrorIs(t, again.Err, kv.ErrNotLeader)
		require.NotErrorIs(t, again.Err, kv.ErrConditionFailed)
		require.NoError(t, next.store.Write(t.Context(), []*kv.Write{again}))
		require.NoError(t, again.Err)
		require.True(t, again.Deduplicated)
		require.Equal(t, first.Version, again.Version)
	})
}

// A transaction was committed by the node that leads, and is sent again to one that stood still and
// takes itself for the leader. That does not say that no attempt was applied: its caller would run
// the transaction again.
func TestATransactionIsNotRefusedByAnEarlierLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		goOn := make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		defer release()
		c.mu.Lock()
		c.tamper = func(_ uint64, m *pb.Message) {
			if m.GetFrom() == old.id {
				<-goOn // its loop sends
			}
		}
		c.mu.Unlock()
		next := c.leader(old.id)
		first, err := next.commit(next.begin(), 1, false)
		require.NoError(t, err)
		require.True(t, old.leads(), "as it sees it")
		again := make(chan error, 1)
		go func() {
			_, err := old.commit(next.begin(), 1, true)
			again <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, again, "it cannot know")
		release()
		err = <-again
		require.ErrorIs(t, err, kv.ErrNotLeader)
		require.NotErrorIs(t, err, kv.ErrVersionGone)
		second, err := next.commit(next.begin(), 1, true)
		require.NoError(t, err)
		require.Equal(t, first, second)
	})
}

// A transaction that was read before the tenure of a leader does not commit in it, since another
// node may have led in between and have refused the transaction for good. What was committed
// before is known all the same.
func TestATransactionIsOfOneTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		before := leader.begin()
		first, err := leader.commit(before, 1, false)
		require.NoError(t, err)
		before = leader.begin()
		leader.log.Transfer(leader.id%3 + 1)
		time.Sleep(2 * time.Second)
		other := c.leader()
		require.NotEqual(t, leader, other)
		_, err = other.commit(before, 2, true)
		require.ErrorIs(t, err, kv.ErrOtherOpening)
		other.log.Transfer(leader.id)
		time.Sleep(2 * time.Second)
		require.Equal(t, leader, c.leader())
		_, err = leader.commit(before, 2, false) // an attempt that took long
		require.ErrorIs(t, err, kv.ErrOtherOpening)
		again, err := leader.commit(before, 1, true)
		require.NoError(t, err)
		require.Equal(t, first, again)
		_, err = leader.commit(leader.begin(), 3, false)
		require.NoError(t, err)
	})
}

// begin returns a snapshot of a node.
func (n *node) begin() kv.Snapshot {
	s, err := n.store.BeginSnapshot(c(n), 0)
	require.NoError(n.c.t, err)
	return s
}

// commit commits a transaction that read a key at a snapshot and writes another one. The sequence
// of its request id names it.
func (n *node) commit(at kv.Snapshot, sequence uint64, retried bool) (kv.SeqNum, error) {
	return n.store.Commit(c(n), &kv.Transaction{
		ReadVersion: at.Version, Epoch: at.Epoch, Keys: [][]byte{[]byte("read")}, Batch: batch("written", fmt.Sprint(sequence)),
	}, kv.WriteOptions{RequestID: kv.RequestID{ClientID: 9, Sequence: sequence, Retried: retried, KnownVersion: at.Version}})
}

// onlyOnce is a write that fails if it is applied twice.
func onlyOnce(i int) *kv.Write {
	return &kv.Write{
		Op: kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "once %d", i), Value: []byte("x")}, If: &kv.Condition{Kind: kv.IfAbsent},
		RequestID: kv.RequestID{ClientID: 1, Sequence: uint64(i + 1)},
	}
}

// Callers write while leaders are cut off, one after the other. Each write happens once, and
// what was acknowledged stays.
func TestCallersOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.leader()
		done := make(chan struct{})
		var callers sync.WaitGroup
		const clients = 4
		acknowledged := make([]int, clients)
		for client := range clients {
			callers.Go(func() {
				for c.insist(done, client, acknowledged[client]) {
					acknowledged[client]++
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			leader := c.leader()
			c.cutOff(leader.id)
			c.leader(leader.id)
			time.Sleep(300 * time.Millisecond)
			c.lose(nil)
		}
		close(done)
		callers.Wait()
		state := c.agree()
		for client, n := range acknowledged {
			require.Greater(t, n, 10)
			for i := range n {
				require.Contains(t, state, fmt.Sprintf("client %d write %d=", client, i))
			}
		}
	})
}

// A single node is a cluster too.
func TestAClusterOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, func(o *engine.Options) { o.Partitions = 1 })
		defer c.stop()
		c.leader().put("a", "1")
		require.Equal(t, "1", c.nodes[0].get("a"))
		c.nodes[0].crash()
		c.nodes[0].start()
		require.Equal(t, "1", c.nodes[0].get("a"))
		c.leader().put("a", "2")
		require.Equal(t, "2", c.nodes[0].get("a"))
	})
}
