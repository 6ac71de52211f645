package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/testrelay"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// clusterWithout starts all nodes of a cluster, waits until they know each other, and ends one.
func clusterWithout(t *testing.T, size int, away uint64) (nodes map[uint64]*running, starts []func() *running, disks []*vfs.Mem) {
	t.Helper()
	disks = make([]*vfs.Mem, size)
	starts, _ = clusterOn(t, disks)
	nodes = map[uint64]*running{}
	for i, start := range starts {
		nodes[uint64(i+1)] = start()
	}
	nodes[away%uint64(size)+1].status(calm)
	put(t, nodes[1], "before")
	require.NoError(t, nodes[away].end())
	delete(nodes, away)
	return nodes, starts, disks
}

// put writes by a node, once a node leads.
func put(t *testing.T, by *running, key string) {
	t.Helper()
	testwait.Until(t, func() bool { return by.client.Put(t.Context(), []byte(key), []byte("value of "+key)) == nil }, key)
}

// holds waits until a node answers a read of a key, which was put.
func (r *running) holds(key string) {
	r.t.Helper()
	testwait.Until(r.t, func() bool {
		value, err := r.client.Get(r.t.Context(), []byte(key))
		return err == nil && string(value) == "value of "+key
	}, key)
}

// lead has a node lead.
func (r *running) lead(node uint64) {
	r.t.Helper()
	testwait.Until(r.t, func() bool {
		leader, err := r.client.TransferLeadership(r.t.Context(), node)
		return err == nil && leader == node
	})
	r.status(func(c *kvd.Cluster) bool { return c.Leader == node })
}

func endAll(t *testing.T, nodes map[uint64]*running) {
	for _, r := range nodes {
		assert.NoError(t, r.end())
	}
}

// A node was away while another one joined, which leads when it comes back.
func TestANodeThatWasAwayHearsALeaderThatHasJoined(t *testing.T) {
	nodes, starts, _ := clusterWithout(t, 3, 3)
	relay := testrelay.New(t)
	id, fsys := join(t, nodes[1], relay, 0)
	nodes[id], _ = startNode(t, fsys, relay)
	nodes[1].status(func(c *kvd.Cluster) bool { return nodeIn(c, id).Voter })
	nodes[1].lead(id)
	put(t, nodes[id], "meanwhile")
	nodes[3] = starts[2]()
	put(t, nodes[3], "forwarded to the one that has joined")
	nodes[3].status(func(c *kvd.Cluster) bool { // another node may lead by now, as after a pause
		err := nodes[3].hint(t.Context())
		return nodeIn(c, id).Voter && calm(c) && (c.Leader == 3 || err != nil && strings.Contains(err.Error(), "at "+nodes[c.Leader].addr))
	})
	nodes[3].holds("meanwhile")
	endAll(t, nodes)
}

// A node was away while another one was replaced. Then the only one that it knows fails: it and the
// new one are a majority.
func TestANodeThatWasAwayElectsOneThatHasJoined(t *testing.T) {
	nodes, starts, _ := clusterWithout(t, 3, 3)
	relay := testrelay.New(t)
	id, fsys := join(t, nodes[1], relay, 2)
	nodes[id], _ = startNode(t, fsys, relay)
	require.ErrorIs(t, <-nodes[2].ended, ErrExpelled)
	delete(nodes, 2)
	put(t, nodes[id], "meanwhile")
	require.NoError(t, nodes[1].end())
	nodes[3] = starts[2]()
	put(t, nodes[id], "by two")
	nodes[3].holds("meanwhile")
	nodes[3].holds("by two")
	nodes[1] = starts[0]()
	nodes[1].status(func(c *kvd.Cluster) bool { return len(c.Nodes) == 3 && calm(c) })
	endAll(t, nodes)
}

// moveStopped moves a node that is ended, and starts it at its new address.
func moveStopped(t *testing.T, nodes map[uint64]*running, by, node uint64, disk *vfs.Mem) (address string) {
	t.Helper()
	require.NoError(t, nodes[node].end())
	relay := testrelay.New(t)
	address = nodes[by].move(node, relay)
	nodes[node], _ = startNode(t, disk, relay)
	nodes[node].status(func(c *kvd.Cluster) bool { return nodeIn(c, node).Peer == address && c.Leader != 0 })
	return address
}

// A node was away while another one moved, which leads when it comes back.
func TestANodeThatWasAwayAnswersALeaderThatHasMoved(t *testing.T) {
	nodes, starts, disks := clusterWithout(t, 5, 3)
	address := moveStopped(t, nodes, 1, 2, disks[1])
	nodes[1].lead(2)
	put(t, nodes[2], "meanwhile")
	nodes[3] = starts[2]()
	nodes[3].status(func(c *kvd.Cluster) bool { return nodeIn(c, 2).Peer == address && calm(c) })
	nodes[3].holds("meanwhile")
	testwait.Until(t, func() bool { return membersNoted(t, disks[2])[2] == address })
	endAll(t, nodes)
}

// A node that joins reads in the log at which address the leader was before it moved. It does not note
// that.
func TestANodeThatJoinsAnswersALeaderThatHasMoved(t *testing.T) {
	disks := make([]*vfs.Mem, 3)
	starts, _ := clusterOn(t, disks)
	nodes := map[uint64]*running{}
	for i, start := range starts {
		nodes[uint64(i+1)] = start()
	}
	nodes[1].status(calm)
	for i := range 16 { // more than the new node gets, and applies, at once: four messages
		value := make([]byte, 256<<10)
		testwait.Until(t, func() bool { return nodes[1].client.Put(t.Context(), fmt.Append(nil, i), value) == nil })
	}
	before := membersNoted(t, disks[1])[2]
	address := moveStopped(t, nodes, 1, 2, disks[1])
	nodes[1].lead(2)
	put(t, nodes[2], "moved")
	relay := testrelay.New(t)
	id, fsys := join(t, nodes[1], relay, 0)
	joined, lines := startNode(t, fsys, relay)
	nodes[id] = joined
	nodes[id].status(func(c *kvd.Cluster) bool { return nodeIn(c, id).Voter && nodeIn(c, 2).Peer == address && calm(c) })
	nodes[id].holds("moved")
	endAll(t, nodes)
	require.Equal(t, address, membersNoted(t, fsys)[2])
	for _, noted := range lines.FilterMessageSnippet("the file NODE has new addresses").All() {
		require.NotContains(t, fmt.Sprint(noted.ContextMap()["nodes"]), before)
	}
}

// The first node was the store of a single node, so one that joins begins with an empty log, and needs a
// checkpoint. It was made before another one joined, which leads when it starts.
func TestANodeThatJoinsAStoreWithDataHearsALeaderThatHasJoined(t *testing.T) {
	fsys := vfs.NewMem()
	alone := start(t, testConfig(zaptest.NewLogger(t), fsys))
	require.NoError(t, alone.client.Put(t.Context(), []byte("before"), []byte("value of before")))
	require.NoError(t, alone.end())
	relays := []*testrelay.Relay{testrelay.New(t), testrelay.New(t), testrelay.New(t)}
	_, err := ConvertNode(fsys, "data", descriptor.Node{Node: 1, Members: map[uint64]string{1: relays[0].Addr()}}, nil)
	require.NoError(t, err)
	nodes := map[uint64]*running{}
	nodes[1], _ = startNode(t, fsys, relays[0])
	put(t, nodes[1], "first")
	late, lateDisk := join(t, nodes[1], relays[1], 0)
	leader, disk := join(t, nodes[1], relays[2], 0)
	nodes[leader], _ = startNode(t, disk, relays[2])
	nodes[1].status(func(c *kvd.Cluster) bool { return nodeIn(c, leader).Voter })
	nodes[1].lead(leader)

	joined, lines := startNode(t, lateDisk, relays[1])
	nodes[late] = joined
	nodes[late].holds("before")
	started := lines.FilterMessage("node of a cluster").All()
	require.Len(t, started, 2, "it was opened again, with the checkpoint")
	require.Equal(t, started[0].ContextMap()["listen"], started[1].ContextMap()["listen"])
	endAll(t, nodes)
}
