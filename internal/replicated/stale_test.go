package replicated

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
)

// read reads a number on a node, 0 if the key is absent.
func (n *node) read(key string, fresh kv.Freshness, patience time.Duration) (int, error) {
	store := n.now()
	if store == nil {
		return 0, kv.ErrClosed
	}
	ctx, cancel := context.WithTimeout(c(n), patience)
	defer cancel()
	l := &kv.Lookup{Key: []byte(key), Fresh: fresh}
	if err := store.Lookup(ctx, []*kv.Lookup{l}); err != nil {
		return 0, err
	}
	if !l.Found || l.Err != nil {
		return 0, l.Err
	}
	return strconv.Atoi(string(l.Value))
}

// delay has each message come up to so long later, in any order; random decides.
func (c *cluster) delay(longest time.Duration, random *rand.Rand, lost func(from, to uint64) bool) {
	var mu sync.Mutex
	c.lose(func(from, to uint64, m *pb.Message) bool {
		mu.Lock()
		late := time.Duration(random.Int64N(int64(longest)))
		mu.Unlock()
		if lost(from, to) || to > uint64(len(c.nodes)) {
			return true
		}
		c.deliverLate(c.nodes[to-1], m, late)
		return true // as far as the network without a delay is concerned
	})
}

// deliverLate delivers a message to a node later, if that runs then.
func (c *cluster) deliverLate(n *node, m *pb.Message, late time.Duration) {
	m = proto.Clone(m).(*pb.Message)
	c.late.Go(func() {
		time.Sleep(late)
		n.mu.Lock()
		log := n.log
		n.mu.Unlock()
		if log != nil {
			log.Deliver(m)
		}
	})
}

// acknowledged are the times at which growing numbers were acknowledged.
type acknowledged struct {
	mu    sync.Mutex
	times []time.Time // of the numbers 1, 2, ...
}

// before returns the newest number that was acknowledged before a time.
func (a *acknowledged) before(at time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := len(a.times); n > 0; n-- {
		if a.times[n-1].Before(at) {
			return n
		}
	}
	return 0
}

// write puts the next number by whichever node takes it. One whose outcome is unknown is put again.
func (a *acknowledged) write(c *cluster) {
	next := strconv.Itoa(len(a.times) + 1)
	for _, n := range c.nodes {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		_, err := n.now().Put(ctx, []byte("n"), []byte(next), kv.WriteOptions{})
		cancel()
		if err == nil {
			a.mu.Lock()
			a.times = append(a.times, time.Now())
			a.mu.Unlock()
			return
		}
		if !errors.Is(err, kv.ErrNotLeader) {
			return
		}
	}
}

// While messages are late and nodes are cut off in turns, no read misses what was acknowledged
// longer ago than it allows, and some reads see less than the newest.
func TestAStaleReadIsNeverOlderThanPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.leader()
		var cut struct {
			sync.Mutex
			node uint64
		}
		c.delay(60*time.Millisecond, rand.New(rand.NewPCG(1, 1)), func(from, to uint64) bool {
			cut.Lock()
			defer cut.Unlock()
			return from == cut.node || to == cut.node
		})
		var history acknowledged
		var running sync.WaitGroup
		over := make(chan struct{})
		every := func(pause time.Duration, do func()) {
			running.Go(func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(pause):
						do()
					}
				}
			})
		}
		every(20*time.Millisecond, func() { history.write(c) })
		var mu sync.Mutex
		reads, older, late := 0, 0, 0
		for _, n := range c.nodes {
			random := rand.New(rand.NewPCG(2, n.id))
			every(15*time.Millisecond, func() {
				lag := []time.Duration{0, 40 * time.Millisecond, 250 * time.Millisecond, 3 * time.Second}[random.IntN(4)]
				begun := time.Now()
				got, err := n.read("n", kv.Freshness{MaxLag: lag}, 300*time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					late++
					return
				case err != nil:
					t.Errorf("node %d: %v", n.id, err)
					return
				}
				reads++
				if want := history.before(begun.Add(-lag)); got < want {
					t.Errorf("node %d: a read that may lag by %v has %d, and %d was acknowledged before", n.id, lag, got, want)
				}
				if got < history.before(begun) {
					older++
				}
			})
		}
		for i := range 12 {
			time.Sleep(2 * time.Second)
			cut.Lock()
			cut.node = uint64(i % 4) // 0: none
			cut.Unlock()
		}
		close(over)
		running.Wait()
		require.Greater(t, len(history.times), 100)
		require.Greater(t, reads, 300)
		require.Positive(t, older, "no read was stale: nothing was tested")
		require.Positive(t, late, "no node was cut off for longer than a read may lag: nothing was tested")
		c.lose(nil)
	})
}

// What a node knows is as old as the question to the leader, and not as the answer, which may be late.
func TestTheAgeOfAStaleReadCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 500 * time.Millisecond
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.leader()
		n := c.follower()
		c.lose(func(_, to uint64, m *pb.Message) bool {
			if to != n.id {
				return false
			}
			c.deliverLate(n, m, late)
			return true
		})
		begun := time.Now()
		_, err := n.read("n", kv.Freshness{}, time.Minute)
		require.NoError(t, err)
		took := time.Since(begun)
		require.GreaterOrEqual(t, took, late)
		require.False(t, n.log.Fresh(late-time.Millisecond))
		require.True(t, n.log.Fresh(took))
	})
}

// A read that may lag asks for a round only if the newest one is too old, and a node that is cut off
// answers it for that long.
func TestStaleReadsCostNoRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		leader.put("n", "1")
		n := c.follower()
		rounds := func() uint64 { return n.log.Counts().Rounds.Count() }
		stale := kv.Freshness{MaxLag: time.Second}
		for _, read := range []struct {
			after time.Duration
			fresh kv.Freshness
			costs uint64
		}{
			{0, stale, 1},                        // there was none
			{0, stale, 0},                        //
			{time.Second, stale, 0},              // as old as allowed
			{1, stale, 1},                        //
			{0, kv.Freshness{}, 1},               // misses nothing
			{900 * time.Millisecond, stale, 0},   // uses the round of the one before
			{100*time.Millisecond + 1, stale, 1}, //
		} {
			time.Sleep(read.after)
			before := rounds()
			got, err := n.read("n", read.fresh, time.Minute)
			require.NoError(t, err)
			require.Equal(t, 1, got)
			require.Equal(t, read.costs, rounds()-before, "%+v", read)
		}
		var all []*kv.Lookup // the most demanding read of a call counts
		for _, fresh := range []kv.Freshness{stale, {}} {
			all = append(all, &kv.Lookup{Key: []byte("n"), Fresh: fresh})
		}
		before := rounds()
		_, err := n.store.LookupAt(t.Context(), all, 0)
		require.NoError(t, err)
		require.Equal(t, uint64(1), rounds()-before)
		s, err := n.store.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Fresh: stale})
		require.NoError(t, err)
		require.True(t, s.Next())
		require.NoError(t, s.Close())
		require.Equal(t, uint64(1), rounds()-before, "the scan costs none")

		c.cutOff(n.id)
		leader.put("n", "2")
		got, err := n.read("n", stale, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, got, "what the node has")
		time.Sleep(time.Second + 1)
		_, err = n.read("n", stale, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.lose(nil)
		got, err = n.read("n", stale, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, got)
	})
}

// A read waits for the version that it names.
func TestAReadWaitsForAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		leader.put("n", "1")
		n := c.follower()
		const lag = time.Hour
		_, err := n.read("n", kv.Freshness{}, time.Minute)
		require.NoError(t, err)
		c.cutOff(n.id)
		version := leader.put("n", "2")
		got, err := n.read("n", kv.Freshness{MaxLag: lag}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, got)
		_, err = n.read("n", kv.Freshness{MaxLag: lag, MinVersion: version}, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { c.lose(nil) })
		before := n.log.Counts().Rounds.Count()
		got, err = n.read("n", kv.Freshness{MaxLag: lag, MinVersion: version}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, got)
		asked := n.log.Counts().Rounds.Count()
		require.Greater(t, asked, before, "whether the cluster has the version")
		got, err = n.read("n", kv.Freshness{MaxLag: lag, MinVersion: version}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, got)
		require.Equal(t, asked, n.log.Counts().Rounds.Count(), "the node has the version")
	})
}

// A read that names a version which no write of the cluster has is refused, by any node, as soon as
// a round has told so.
func TestAReadOfAVersionThatTheClusterHasNotIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		version := c.leader().put("n", "1")
		for _, n := range c.nodes {
			for _, lag := range []time.Duration{0, time.Hour} {
				for _, ahead := range []kv.SeqNum{version + 1000, 1 << 55} {
					fresh := kv.Freshness{MaxLag: lag, MinVersion: ahead}
					before := n.log.Counts().Rounds.Count()
					_, err := n.read("n", fresh, 10*time.Second)
					require.ErrorIs(t, err, kv.ErrVersionAhead)
					require.ErrorIs(t, err, kv.ErrVersionGone)
					_, err = n.store.LookupAt(t.Context(), []*kv.Lookup{{Key: []byte("n"), Fresh: fresh}}, 0)
					require.ErrorIs(t, err, kv.ErrVersionAhead)
					_, err = n.store.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Fresh: fresh})
					require.ErrorIs(t, err, kv.ErrVersionAhead)
					require.Equal(t, before+3, n.log.Counts().Rounds.Count(), "a round for each")
				}
			}
		}
		n := c.follower()
		c.cutOff(n.id)
		_, err := n.read("n", kv.Freshness{MaxLag: time.Hour, MinVersion: version + 1000}, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the node cannot know")
	})
}

// A transaction that has read on one node commits on the one that leads, which is told so.
func TestATransactionOfAnotherNodeCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader, follower := c.leader(), c.follower()
		leader.put("a", "1")
		leader.put("b", "1")
		s, err := follower.store.BeginSnapshot(t.Context(), time.Minute)
		require.NoError(t, err)
		commit := func(key string, at kv.SeqNum, elsewhere bool) error {
			var b kv.WriteBatch
			b.Put([]byte("c"), nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := leader.store.Commit(ctx, &kv.Transaction{ReadVersion: at, Epoch: s.Epoch, Elsewhere: elsewhere, Keys: [][]byte{[]byte(key)}, Batch: &b}, kv.WriteOptions{})
			return err
		}
		leader.put("a", "2")
		require.ErrorIs(t, commit("b", s.Version, false), kv.ErrOtherOpening)
		require.ErrorIs(t, commit("a", s.Version, true), kv.ErrConflict)
		require.NoError(t, commit("b", s.Version, true))
		err = commit("b", s.Version+1000, true)
		require.ErrorIs(t, err, kv.ErrVersionAhead, "the leader has everything that another node has")
		require.NotErrorIs(t, err, kv.ErrOtherOpening, "an attempt on its way may commit once the cluster has the version")
		c.cutOff(leader.id)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = leader.store.Commit(ctx, &kv.Transaction{ReadVersion: s.Version + 1000, Epoch: s.Epoch, Elsewhere: true, Keys: [][]byte{[]byte("b")}, Batch: batch("c", "3")}, kv.WriteOptions{})
		require.ErrorIs(t, err, kv.ErrNotLeader, "as soon as the tenure ends")
		c.lose(nil)
	})
}
