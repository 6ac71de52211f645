package replicated

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
)

const compareInterval = 10 * time.Second

func comparing(o *engine.Options) { o.CompareInterval = compareInterval }

// Nodes whose tables and memtables differ, and that apply writes all the time, have the same
// digests, also after a restart and a change of the leader.
func TestStatesAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, comparing)
		defer c.stop()
		leader := c.leader()
		write := func(rounds int) { // for a second each
			for round := range rounds {
				for i := range 10 {
					c.leader().put(fmt.Sprint("key ", i), fmt.Sprint("round ", round))
					time.Sleep(100 * time.Millisecond)
				}
			}
		}
		_, err := leader.store.Apply(t.Context(), expiring("short", leader.store.Now()+5000), kv.WriteOptions{})
		require.NoError(t, err)
		leader.put("large", strings.Repeat("x", 100<<10))
		_, err = leader.store.Delete(t.Context(), []byte("key 3"), kv.WriteOptions{})
		require.NoError(t, err)
		require.NoError(t, c.follower().store.CompactAll(t.Context()))
		write(25)
		for _, n := range c.nodes {
			requireSame(t, n, 2)
		}

		again := c.follower()
		again.crash()
		again.start()
		leader.log.Transfer(again.id)
		time.Sleep(2 * time.Second)
		write(25)
		require.Equal(t, again, c.leader())
		for _, n := range c.nodes {
			requireSame(t, n, 2)
		}
	})
}

// A compaction drops keys that have expired since the nodes were compared, and leaves no later number in
// the tables. A node that restarts then applies the entry of that comparison again, and takes no part in
// it: its digest would be another one. It takes part in the next one.
func TestANodeDoesNotCompareAgainWhatExpiredBeforeItsRestart(t *testing.T) {
	const interval = 25 * time.Second
	for name, down := range map[string]func(*node){"in order": (*node).stop, "after a power cut": (*node).crash} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 3, func(o *engine.Options) { o.CompareInterval = interval })
				defer c.stop()
				leader, again := c.leader(), c.follower()
				expires := leader.store.Now() + uint64((interval + 3*time.Second).Milliseconds())
				_, err := leader.store.Apply(t.Context(), expiring("short", expires), kv.WriteOptions{})
				require.NoError(t, err)
				time.Sleep(interval + time.Second)
				for _, n := range c.nodes {
					requireSame(t, n, 1)
				}
				compared := leader.log.Comparisons().Last.Version
				require.Equal(t, "value", again.get("short"))

				time.Sleep(5 * time.Second)
				require.Empty(t, again.get("short"))
				require.NoError(t, again.store.Flush(t.Context()))
				require.NoError(t, again.store.CompactAll(t.Context()))
				down(again)
				again.start()
				time.Sleep(askEvery + 5*time.Second) // it asks the others for their digests again
				require.NoError(t, again.store.Err())
				require.Equal(t, compared, leader.log.Comparisons().Last.Version)
				time.Sleep(interval)
				for _, n := range c.nodes {
					requireSame(t, n, 1)
					require.Greater(t, n.log.Comparisons().Last.Version, compared)
				}
			})
		})
	}
}

// requireSame fails unless a node has seen so many comparisons in which all nodes were the same.
func requireSame(t *testing.T, n *node, times uint64) {
	t.Helper()
	seen := n.log.Comparisons()
	require.Equal(t, []uint64{1, 2, 3}, seen.Last.Same, "node %d", n.id)
	require.Empty(t, seen.Last.Differ)
	require.Zero(t, seen.Differ)
	require.GreaterOrEqual(t, seen.Same, times)
	require.NoError(t, n.store.Err())
}

// A node with another state than the two others stops, also if it leads, and is not opened again.
// The others go on.
func TestANodeThatDiffersStops(t *testing.T) {
	for name, leads := range map[string]bool{"it follows": false, "it leads": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 3, comparing)
				defer c.stop()
				leader := c.leader()
				victim := c.follower()
				c.forge(victim.id)
				leader.put("key", "honest")
				if leads {
					leader.log.Transfer(victim.id)
					time.Sleep(2 * time.Second)
					require.Equal(t, victim, c.leader())
				}
				require.Equal(t, "forged", victim.get("key"))
				time.Sleep(compareInterval + 2*time.Second)
				synctest.Wait()

				err := victim.store.Err()
				require.ErrorIs(t, err, engine.ErrDiffers)
				require.ErrorIs(t, err, kv.ErrFailed)
				_, err = victim.store.Get(t.Context(), []byte("key"))
				require.ErrorIs(t, err, engine.ErrDiffers)
				require.ErrorIs(t, victim.store.Close(), engine.ErrDiffers)
				require.ErrorIs(t, victim.open(), kv.ErrCorrupt)
				victim.mu.Lock()
				victim.log = nil
				victim.mu.Unlock()
				for _, n := range c.nodes {
					if n != victim {
						last := n.log.Comparisons().Last
						require.Equal(t, []uint64{victim.id}, last.Differ)
						require.Len(t, last.Same, 2)
						require.False(t, last.Unknown)
					}
				}
				c.leader().put("after", "it")
				require.Contains(t, c.agree(), "key=honest")
			})
		})
	}
}

// forge has a node receive other values than its leader sends.
func (c *cluster) forge(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tamper = func(to uint64, m *pb.Message) {
		for _, e := range m.GetEntries() {
			if to == id {
				e.Data = bytes.ReplaceAll(e.Data, []byte("honest"), []byte("forged"))
			}
		}
	}
}

// While no majority tells which of two states is right both nodes go on, and tell. The third one
// decides.
func TestOfTwoStatesNoneIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, comparing)
		defer c.stop()
		leader := c.leader()
		victim := c.follower()
		var third *node
		for _, n := range c.nodes {
			if n != leader && n != victim {
				third = n
			}
		}
		third.stop()
		c.forge(victim.id)
		leader.put("key", "honest")
		time.Sleep(compareInterval + 2*time.Second)
		for _, n := range []*node{leader, victim} {
			last := n.log.Comparisons().Last
			require.True(t, last.Unknown)
			require.Len(t, last.Differ, 2)
			require.Empty(t, last.Same)
			require.NoError(t, n.store.Err())
		}
		leader.put("both", "go on")
		third.start()
		time.Sleep(3 * time.Second)
		require.NoError(t, victim.store.Err(), "the third node takes part in comparisons that begin after its start")
		time.Sleep(compareInterval)
		require.ErrorIs(t, victim.store.Err(), engine.ErrDiffers)
		require.Equal(t, []uint64{victim.id}, leader.log.Comparisons().Last.Differ)
		require.ErrorIs(t, victim.store.Close(), engine.ErrDiffers)
		victim.mu.Lock()
		victim.store, victim.running, victim.log = nil, nil, nil
		victim.mu.Unlock()
	})
}

// What a node concludes from the digests that it knows.
func TestConclusions(t *testing.T) {
	voters := []replica.Member{{ID: 1, Voter: true}, {ID: 2, Voter: true}, {ID: 3, Voter: true}, {ID: 4, Learner: true}}
	at := func(sum uint64) peer.Digest { return peer.Digest{Version: 5, Sum: sum} }
	for name, test := range map[string]struct {
		theirs  map[uint64]peer.Digest
		nodes   []replica.Member
		want    Comparison
		decided bool
	}{
		"alone":                      {nil, voters[:1], Comparison{Version: 5, Same: []uint64{1}}, true},
		"members are not known yet":  {nil, nil, Comparison{Version: 5, Unknown: true}, false},
		"none has told":              {nil, voters, Comparison{Version: 5, Unknown: true, Differ: []uint64{1}}, false},
		"others are at other places": {map[uint64]peer.Digest{2: {Version: 4, Sum: 9}, 3: {Version: 6, Sum: 9}}, voters, Comparison{Version: 5, Unknown: true, Differ: []uint64{1}}, false},
		"a majority":                 {map[uint64]peer.Digest{2: at(7)}, voters, Comparison{Version: 5, Same: []uint64{1, 2}}, true},
		"a majority against it":      {map[uint64]peer.Digest{2: at(8), 3: at(8)}, voters, Comparison{Version: 5, Same: []uint64{2, 3}, Differ: []uint64{1}}, true},
		"a learner that differs":     {map[uint64]peer.Digest{2: at(7), 4: at(8)}, voters, Comparison{Version: 5, Same: []uint64{1, 2}, Differ: []uint64{4}}, true},
		"a learner has no vote":      {map[uint64]peer.Digest{4: at(7)}, voters, Comparison{Version: 5, Unknown: true, Differ: []uint64{1, 4}}, false},
		"two states of two":          {map[uint64]peer.Digest{2: at(8)}, voters[:2], Comparison{Version: 5, Unknown: true, Differ: []uint64{1, 2}}, true},
		"three states":               {map[uint64]peer.Digest{2: at(8), 3: at(9)}, voters, Comparison{Version: 5, Unknown: true, Differ: []uint64{1, 2, 3}}, true},
	} {
		c := comparer{node: 1, theirs: test.theirs}
		now, _, decided := c.compare(at(7), test.nodes)
		require.Equal(t, test.want, now, name)
		require.Equal(t, test.decided, decided, name)
	}
}
