package replicated

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
)

// add adds a node, which is not started.
func (c *cluster) add(peer string, replaces uint64) *node {
	id, err := c.leader().log.Add(c.t.Context(), peer, replaces)
	require.NoError(c.t, err)
	n := &node{c: c, id: id, fs: vfs.NewMem()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for uint64(len(c.nodes)) < id-1 { // ids that were used in vain
		c.nodes = append(c.nodes, &node{c: c, id: uint64(len(c.nodes) + 1), fs: vfs.NewMem()})
	}
	c.nodes = append(c.nodes, n)
	return n
}

// introduce tells the cluster the directory of a node, as the node itself does.
func (c *cluster) introduce(id uint64) error {
	n, leader := c.nodes[id-1], c.leader()
	if err := leader.log.Judge(id, n.directory()); err != nil {
		return err
	}
	return leader.log.Describe(c.t.Context(), id, Node{Store: n.directory()})
}

// promoted waits until a node votes.
func (c *cluster) promoted(id uint64) {
	require.NoError(c.t, c.introduce(id))
	for range 200 {
		time.Sleep(PromoteEvery)
		for _, n := range c.nodes {
			if n.store == nil {
				continue
			}
			if promoted, err := n.log.Promote(c.t.Context()); err == nil && promoted == id {
				return
			}
		}
	}
	require.Fail(c.t, "the node does not become a voter", "%d", id)
}

func (c *cluster) votersNow() []uint64 {
	voters := slices.Clone(c.leader().log.Configuration().Conf.GetVoters())
	slices.Sort(voters)
	return voters
}

// A node joins: it has no data, gets all of the log, and votes when it has caught up. Its id was
// never used. A node is removed, also one that leads.
func TestANodeJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.fill(0, 40)
		n := c.add("four:1", 0)
		require.Equal(t, uint64(4), n.id)
		promoted, err := c.leader().log.Promote(t.Context())
		require.NoError(t, err)
		require.Zero(t, promoted, "it is not there")
		n.start()
		c.promoted(4)
		require.Equal(t, []uint64{1, 2, 3, 4}, c.votersNow())
		require.Equal(t, "four:1", n.log.Configuration().Nodes[4].Peer)
		c.agree()

		leader := c.leader()
		var elsewhere *replica.NotLeadingError
		require.ErrorAs(t, leader.log.Remove(t.Context(), leader.id), &elsewhere)
		require.True(t, elsewhere.Leaving)
		next := c.leader(leader.id)
		require.NoError(t, next.log.Remove(t.Context(), leader.id))
		require.NoError(t, next.log.Remove(t.Context(), leader.id), "it is gone already")
		require.ErrorIs(t, next.log.Remove(t.Context(), 5), kv.ErrInvalidArgument)
		require.Len(t, c.votersNow(), 3)
		require.ErrorContains(t, next.log.Judge(leader.id, 0), "was removed from the cluster")
		leader.stop()
		c.fill(40, 10)
		for _, n := range c.nodes { // the configuration is that of the stores
			if n != leader {
				require.NoError(t, n.store.Flush(t.Context()))
				n.crash()
			}
		}
		for _, n := range c.nodes {
			if n != leader {
				n.start()
			}
		}
		require.Len(t, c.votersNow(), 3)
		require.Equal(t, uint64(5), c.leader().log.Configuration().Next)
		c.agree()
	})
}

// A node that joins when the beginning of the log is given up gets a checkpoint, with all that is
// known of the nodes, and votes when it has caught up.
func TestANodeJoinsByACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, smallLog)
		defer c.stop()
		require.NoError(t, c.leader().log.Describe(t.Context(), 1, Node{Peer: "one:1", Client: "one:2", Store: c.nodes[0].directory()}))
		c.giveUpLog(1)
		n := c.add("two:1", 0)
		n.start()
		n.awaitInstall()
		n.catchUp()
		c.promoted(2)
		c.fill(0, 10)
		c.agree()
		want := map[uint64]Node{1: {Peer: "one:1", Client: "one:2", Store: c.nodes[0].directory()}, 2: {Peer: "two:1", Store: n.directory()}}
		require.Equal(t, want, n.log.Configuration().Nodes)
		require.Equal(t, uint64(3), n.log.Configuration().Next)
		require.Error(t, n.log.Judge(1, 12))
	})
}

// A node that is dead is replaced by one change, and one that was added in vain makes room.
func TestANodeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.fill(0, 20)
		dead := c.follower()
		dead.stop()
		c.add("five:1", dead.id)
		n := c.add("five:1", dead.id)
		require.Equal(t, uint64(5), n.id)
		require.True(t, c.leader().log.Configuration().removed(4))
		n.start()
		require.Equal(t, []uint64{1, 2, 3}, c.votersNow(), "the dead one counts until then")
		c.promoted(5)
		require.Len(t, c.votersNow(), 3)
		require.NotContains(t, c.votersNow(), dead.id)
		require.Zero(t, c.leader().log.Configuration().Nodes[5].Replaces)
		_, err := c.leader().log.Add(t.Context(), "six:1", dead.id)
		require.ErrorContains(t, err, "was removed already")
		c.agree()
	})
}

// A learner has acknowledged all of the log, and its directory is replaced by an empty one before the
// log knows it. It does not become a voter: it would count for a majority with entries that it lacks.
func TestALearnerWithAnotherDirectoryIsNotPromoted(t *testing.T) {
	for name, introduced := range map[string]bool{"before it was known": false, "after it was known": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 3, nil)
				defer c.stop()
				c.fill(0, 40)
				n := c.add("four:1", 0)
				n.start()
				c.agree()
				if introduced {
					require.NoError(t, c.introduce(4))
				}
				n.stop()
				n.fs = vfs.NewMem()
				n.lost.Store(1)
				n.start()
				require.ErrorContains(t, c.introduce(4), "another data directory")
				for range 4 * promoteCalls {
					time.Sleep(PromoteEvery)
					promoted, err := c.leader().log.Promote(t.Context())
					if err != nil { // it was heard of shortly before it was stopped
						require.ErrorContains(t, err, "another data directory")
					}
					require.Zero(t, promoted)
				}
				require.Equal(t, []uint64{1, 2, 3}, c.votersNow())
				n.stop() // as its process ends: it is told that it must not take part
				next := c.add("five:1", 4)
				next.start()
				c.promoted(5)
				c.agree()
			})
		})
	}
}

// A learner does not become a voter whose directory is not the one with which it has acknowledged
// entries to this leader, also if the log has come to know it by an earlier leader.
func TestALearnerThatTheLogKnowsOtherwiseIsNotPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		n := c.add("four:1", 0)
		n.start()
		c.agree()
		leader := c.leader()
		for range 2 * promoteCalls {
			time.Sleep(PromoteEvery)
			promoted, err := leader.log.Promote(t.Context())
			require.NoError(t, err)
			require.Zero(t, promoted, "the log does not know its directory")
		}
		require.NoError(t, leader.log.Describe(t.Context(), 4, Node{Store: 99}))
		err := error(nil)
		for range 2 * promoteCalls {
			if _, err = leader.log.Promote(t.Context()); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "kvd cluster join --replace 4")
		require.Equal(t, []uint64{1, 2, 3}, c.votersNow())
	})
}

// A node tells its addresses and its data directory, and cannot come with another one.
func TestANodeIsKnownByItsDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		directory := c.nodes[1].directory()
		says := Node{Client: "two:9", Store: directory}
		require.False(t, leader.log.Configuration().Known(2, says))
		require.NoError(t, leader.log.Describe(t.Context(), 2, says))
		require.NoError(t, leader.log.Describe(t.Context(), 2, says), "it is known")
		require.True(t, leader.log.Configuration().Known(2, says))
		require.NoError(t, leader.log.Describe(t.Context(), leader.id, Node{Client: "lead:9"}))
		require.ErrorIs(t, leader.log.Describe(t.Context(), 2, Node{Store: directory + 1}), kv.ErrInvalidArgument)
		require.ErrorIs(t, leader.log.Describe(t.Context(), 9, says), kv.ErrInvalidArgument)
		synctest.Wait()
		for _, n := range c.nodes {
			require.NoError(t, n.log.Judge(2, directory))
			require.NoError(t, n.log.Judge(2, 0), "it does not tell")
			require.ErrorContains(t, n.log.Judge(2, directory+1), "another data directory")
		}
		other := c.follower()
		_, err := other.store.Put(t.Context(), []byte("k"), nil, kv.WriteOptions{})
		require.ErrorContains(t, err, fmt.Sprintf("write to node %d at lead:9", leader.id))
	})
}

// The network is told where the nodes are: at first what the node was told when it was made.
func TestTheAddressesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		log := New(Config{
			Cluster: 7, Node: 1, Voters: []uint64{1}, Addresses: map[uint64]string{1: "one:1", 2: "two:1"},
			Follow: func(all map[uint64]string) { told = append(told, fmt.Sprint(all)) },
		})
		store, err := engine.Open("data", engine.Options{FS: vfs.NewMem(), Partitions: 1, LowDiskBytes: 1, Replicated: log})
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		for !log.Status().Leading {
			time.Sleep(replica.TickInterval)
		}
		_, err = log.Add(t.Context(), "new:1", 0)
		require.NoError(t, err)
		_, err = log.Add(t.Context(), "one:1", 0)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.Equal(t, "map[1:one:1 2:two:1] map[1:one:1 2:new:1]", strings.Join(told, " "))
		require.False(t, log.Removed())
	})
}

// A node gets another address, which all nodes know as of an entry. A leader hands the leadership
// over first; and the cluster goes on without the node until that is at the address.
func TestANodeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader, follower := c.leader(), c.follower()
		require.NoError(t, leader.log.Move(t.Context(), follower.id, "new:1"))
		require.NoError(t, leader.log.Move(t.Context(), follower.id, "new:1"), "it has it")
		require.ErrorContains(t, leader.log.Move(t.Context(), leader.id, "new:1"), "has the address new:1")
		require.ErrorContains(t, leader.log.Move(t.Context(), 9, "other:1"), "there is no node 9")
		require.ErrorIs(t, follower.log.Move(t.Context(), leader.id, "other:1"), kv.ErrNotLeader)

		var elsewhere *replica.NotLeadingError
		require.ErrorAs(t, leader.log.Move(t.Context(), leader.id, "lead:1"), &elsewhere)
		next := c.leader(leader.id)
		require.Equal(t, next.id, elsewhere.Leader)
		require.NoError(t, next.log.Move(t.Context(), leader.id, "lead:1"))
		synctest.Wait()
		time.Sleep(2 * replica.TickInterval) // until all know that the entries are committed
		for _, n := range c.nodes {
			told := n.log.Configuration().Addresses(map[uint64]string{next.id: "old:1"})
			require.Equal(t, "new:1", told[follower.id])
			require.Equal(t, "lead:1", told[leader.id])
		}

		// Of three voters one is away: no other one may be at an address where it perhaps is not.
		third, other := leader, follower
		if next == follower {
			other = c.nodes[6-leader.id-follower.id-1]
		}
		third.stop()
		time.Sleep(2 * silentToMove) // it is still recent
		next = c.leader()
		require.ErrorIs(t, next.log.Move(t.Context(), other.id, "wrong:1"), replica.ErrBusy)
		require.NoError(t, next.log.Move(t.Context(), third.id, "third:1"), "it is away already")
		require.NoError(t, next.log.Remove(t.Context(), third.id))
		require.ErrorContains(t, next.log.Move(t.Context(), third.id, "third:2"), "was removed")
	})
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		require.NoError(t, c.leader().log.Move(t.Context(), 1, "one:2"), "it needs no other node")
		require.Equal(t, "one:2", c.leader().log.Configuration().Nodes[1].Peer)
	})
}
