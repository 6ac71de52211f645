package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testrelay"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// status waits until a node describes the cluster as wanted.
func (r *running) status(want func(*kvd.Cluster) bool) (c kvd.Cluster) {
	r.t.Helper()
	testwait.Until(r.t, func() bool {
		var err error
		c, err = r.client.Cluster(r.t.Context())
		require.NoError(r.t, err)
		return want(&c)
	})
	return c
}

// hint returns what a node that does not lead tells clients that go to the leader themselves.
func (r *running) hint(ctx context.Context) error {
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, conn.Close()) }()
	ctx = metadata.AppendToOutgoingContext(ctx, kvdpb.FollowsLeaderHeader, "1")
	_, err = kvdpb.NewKVServiceClient(conn).Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
	return err
}

// nodeIn returns a node of a cluster; without its id if it is not there.
func nodeIn(c *kvd.Cluster, id uint64) kvd.ClusterNode {
	for _, n := range c.Nodes {
		if n.ID == id {
			return n
		}
	}
	return kvd.ClusterNode{}
}

// calm reports whether all nodes are up, connected, and known by their addresses.
func calm(c *kvd.Cluster) bool {
	return c.Leader != 0 && !slices.ContainsFunc(c.Nodes, func(n kvd.ClusterNode) bool {
		return !n.Answers || n.Client == "" || n.Streams != "" || !n.Started || n.Lag > 0
	})
}

// join makes a node that joins by another one. It is not started.
func join(t *testing.T, by *running, d *testrelay.Relay, replaces uint64) (uint64, *vfs.Mem) {
	t.Helper()
	var added kvd.AddedNode
	testwait.Until(t, func() bool { // it is refused while a majority is silent
		var err error
		added, err = by.client.AddNode(t.Context(), d.Addr(), replaces)
		return err == nil
	})
	fsys := vfs.NewMem()
	incarnation, err := kv.ParseIncarnation(added.Incarnation)
	require.NoError(t, err)
	node := descriptor.Node{Cluster: added.Cluster, Incarnation: incarnation, Node: added.ID, Members: added.Members}
	require.NoError(t, JoinNode(fsys, "data", node, added.Partitions, added.First))
	return added.ID, fsys
}

// The nodes of a cluster are seen from any of them; the leadership is transferred, a node joins,
// one is replaced and one is removed.
func TestMembership(t *testing.T) {
	starts, _ := clusterOf(t, 3)
	remove := func(by *running, node uint64) { // it is refused while a majority is silent
		testwait.Until(t, func() bool { return by.client.RemoveNode(t.Context(), node) == nil })
	}
	nodes := map[uint64]*running{}
	for i, start := range starts {
		nodes[uint64(i+1)] = start()
	}
	c := nodes[2].status(calm)
	require.Len(t, c.Nodes, 3)
	for _, n := range c.Nodes {
		require.Equal(t, nodes[n.ID].addr, n.Client)
		require.True(t, n.Voter)
		require.NotEmpty(t, n.Version)
		require.GreaterOrEqual(t, n.Silent, time.Duration(0))
	}
	other := c.Leader%3 + 1
	testwait.Until(t, func() bool { // a change of an address may be under way
		leader, err := nodes[other%3+1].client.TransferLeadership(t.Context(), other)
		return err == nil && leader == other
	})
	nodes[1].status(func(c *kvd.Cluster) bool { return c.Leader == other })
	testwait.Until(t, func() bool { return nodes[other].client.Put(t.Context(), []byte("k"), []byte("v")) == nil }) // once its tenure has begun
	err := nodes[other%3+1].hint(t.Context())
	require.ErrorContains(t, err, "at "+nodes[other].addr)

	// Node 4 joins, and is started: it gets what there is, and votes.
	id, _ := join(t, nodes[1], testrelay.New(t), 0)
	require.Equal(t, uint64(4), id)
	c = nodes[1].status(func(c *kvd.Cluster) bool { return nodeIn(c, 4).ID == 4 })
	require.False(t, nodeIn(&c, 4).Answers || nodeIn(&c, 4).Voter || nodeIn(&c, 4).Started)
	_, err = nodes[1].client.AddNode(t.Context(), nodeIn(&c, 1).Peer, 0)
	require.ErrorContains(t, err, "node 1 has the address")
	_, err = nodes[1].client.AddNode(t.Context(), "10.0.0.1:7", 0)
	require.ErrorIs(t, err, kvd.ErrInvalid, "there are no certificates")
	second := testrelay.New(t)
	id, fsys := join(t, nodes[1], second, 0)
	require.Equal(t, uint64(5), id, "at another address it is another node")
	remove(nodes[1], 4)
	nodes[5], _ = startNode(t, fsys, second)
	nodes[5].status(func(c *kvd.Cluster) bool { return nodeIn(c, 5).Voter && calm(c) })
	value, err := nodes[5].client.Get(t.Context(), []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(value))

	// Node 6 replaces node 3, which runs.
	third := testrelay.New(t)
	id, fsys = join(t, nodes[5], third, 3)
	nodes[id], _ = startNode(t, fsys, third)
	require.ErrorIs(t, <-nodes[3].ended, ErrExpelled)
	delete(nodes, 3)
	c = nodes[1].status(func(c *kvd.Cluster) bool { return nodeIn(c, 6).Voter && calm(c) })
	require.Len(t, c.Nodes, 4)

	// The leader itself is removed, asked for by another node.
	leader := c.Leader
	asked := nodes[1]
	if leader == 1 {
		asked = nodes[2]
	}
	remove(asked, leader)
	require.NoError(t, asked.client.RemoveNode(t.Context(), leader), "it is gone")
	require.ErrorIs(t, asked.client.RemoveNode(t.Context(), 77), kvd.ErrInvalid)
	err = <-nodes[leader].ended
	require.ErrorIs(t, err, ErrExpelled)
	require.Equal(t, ExitExpelled, ExitCode(err))
	delete(nodes, leader)
	asked.status(func(c *kvd.Cluster) bool { return len(c.Nodes) == 3 && calm(c) })
	for _, r := range nodes {
		assert.NoError(t, r.end())
	}
}

// membersNoted returns the addresses that the NODE file of a node has.
func membersNoted(t *testing.T, fsys vfs.FS) map[uint64]string { return noted(t, fsys).Members }

// noted returns what the NODE file of a node has.
func noted(t *testing.T, fsys vfs.FS) descriptor.Node {
	store, err := descriptor.Read(fsys, "data")
	require.NoError(t, err)
	n, err := descriptor.ReadNode(fsys, "data", store.StoreID)
	require.NoError(t, err)
	return n
}

// listenOf returns where a node said that it listens for the others.
func listenOf(lines []observer.LoggedEntry) string { return lines[0].ContextMap()["listen"].(string) }

// move gives a node another address. It is refused while an election is under way.
func (r *running) move(node uint64, d *testrelay.Relay) (address string) {
	address = d.Addr()
	testwait.Until(r.t, func() bool { return r.client.MoveNode(r.t.Context(), node, address) == nil })
	return address
}

// A node moves to another address while it is stopped, and one that leads while it runs. All nodes
// note where the others are, for their next start.
func TestANodeMovesToAnotherAddress(t *testing.T) {
	disks := make([]*vfs.Mem, 3)
	starts, logged := clusterOn(t, disks)
	nodes, listens := map[uint64]*running{}, map[uint64]string{}
	for i, start := range starts {
		nodes[uint64(i+1)] = start()
		listens[uint64(i+1)] = listenOf(logged(i, "node of a cluster"))
	}
	c := nodes[1].status(calm)
	moved := c.Leader%3 + 1
	other := moved%3 + 1
	require.NoError(t, nodes[moved].end())
	first := testrelay.New(t)
	firstAddress := nodes[other].move(moved, first)
	for address, node := range map[string]uint64{"127.0.0.1:1": 9, "10.0.0.1:1": moved, nodeIn(&c, other).Peer: moved} {
		require.ErrorIs(t, nodes[other].client.MoveNode(t.Context(), node, address), kvd.ErrInvalid, address)
	}
	nodes[other].status(func(c *kvd.Cluster) bool { return nodeIn(c, moved).Peer == firstAddress && !nodeIn(c, moved).Answers })
	again, lines := startNode(t, disks[moved-1], first)
	nodes[moved], listens[moved] = again, listenOf(lines.FilterMessage("node of a cluster").All())
	c = again.status(calm)

	leader, second := c.Leader, testrelay.New(t)
	at := listens[leader]
	second.To(at)
	asked := nodes[leader%3+1]
	secondAddress := asked.move(leader, second)
	asked.status(func(c *kvd.Cluster) bool { return nodeIn(c, leader).Peer == secondAddress && calm(c) })
	for id, disk := range disks {
		testwait.Until(t, func() bool {
			known := membersNoted(t, disk)
			return known[leader] == secondAddress && (known[moved] == firstAddress || moved == leader)
		}, fmt.Sprintf("node %d notes the addresses", id+1))
	}
	for _, r := range nodes {
		assert.NoError(t, r.end())
	}
}

// A node that cannot note the addresses says so once, and tries again.
func TestAddressesThatCannotBeNoted(t *testing.T) {
	disk := vfs.NewMem()
	require.NoError(t, initNode(disk, descriptor.Node{Cluster: descriptor.NewID(), Node: 1, Members: map[uint64]string{1: "127.0.0.1:1"}}))
	faults := faultfs.Wrap(disk, nil)
	r, lines := startNode(t, faults, testrelay.New(t))
	var failed atomic.Int64
	faults.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Create || !strings.Contains(op.Name, descriptor.NodeName) {
			return faultfs.Fault{}
		}
		failed.Add(1)
		return faultfs.Fault{Err: syscall.ENOSPC}
	}))
	address := r.move(1, testrelay.New(t))
	testwait.Until(t, func() bool { return failed.Load() > 2 })
	require.Len(t, lines.FilterMessageSnippet("cannot be written to NODE").All(), 1)
	require.Equal(t, "127.0.0.1:1", membersNoted(t, disk)[1])
	faults.SetInjector(nil)
	testwait.Until(t, func() bool { return membersNoted(t, disk)[1] == address })
	require.NoError(t, r.end())
}

// A node that has lost its disk, and is made again under its old id, is refused and ends.
func TestANodeThatLostItsDataDoesNotTakePart(t *testing.T) {
	starts, _ := clusterOf(t, 2)
	one, two := starts[0](), starts[1]()
	c := one.status(calm)
	require.NoError(t, two.end())
	fsys := vfs.NewMem()
	members := map[uint64]string{1: nodeIn(&c, 1).Peer, 2: nodeIn(&c, 2).Peer}
	require.NoError(t, initNode(fsys, descriptor.Node{Cluster: c.ID, Node: 2, Members: members}))
	config := testConfig(zap.NewNop(), fsys)
	config.Cluster, config.ClusterListen = true, "127.0.0.1:0"
	err := Run(t.Context(), config, nil)
	require.ErrorIs(t, err, ErrExpelled)
	require.ErrorContains(t, err, "another data directory")
	require.ErrorContains(t, err, "kvd cluster join --replace 2")
	require.NoError(t, one.end())
}

// A node that was made with other members than the others, by mistake, is refused by them, and does
// not tell them that they were removed: they would end for good.
func TestANodeThatWasMadeWithOtherMembersEndsNoOther(t *testing.T) {
	cluster, members, relays := descriptor.NewID(), map[uint64]string{}, map[uint64]*testrelay.Relay{}
	for id := range uint64(3) {
		relays[id+1] = testrelay.New(t)
		members[id+1] = relays[id+1].Addr()
	}
	begin := func(id uint64, members map[uint64]string) (*running, *observer.ObservedLogs) {
		fsys := vfs.NewMem()
		require.NoError(t, initNode(fsys, descriptor.Node{Cluster: cluster, Node: id, Members: members}))
		return startNode(t, fsys, relays[id])
	}
	wrong, _ := begin(3, map[uint64]string{3: members[3]})
	wrong.status(func(c *kvd.Cluster) bool { return c.Leader == 3 })
	one, lines := begin(1, members)
	two, _ := begin(2, members)
	testwait.Until(t, func() bool {
		return slices.ContainsFunc(lines.FilterMessage("no connection to a node").All(), func(l observer.LoggedEntry) bool {
			return strings.Contains(fmt.Sprint(l.ContextMap()["error"]), "node 3 refuses the call: the cluster of node 1 began with the nodes [1 2 3]")
		})
	})
	for _, n := range []*running{one, two} {
		n.status(func(c *kvd.Cluster) bool { return c.Leader == 1 || c.Leader == 2 })
	}
	for _, n := range []*running{one, two, wrong} {
		require.NoError(t, n.end())
	}
}

// What a node tells of errors comes to the one that asked it, as far as that decides by it.
func TestRefusalsOfANode(t *testing.T) {
	for _, kind := range []error{kv.ErrUncertain, kv.ErrNotLeader, replica.ErrBusy, kv.ErrInvalidArgument} {
		a, err := refuse(kind)
		require.NoError(t, err)
		require.ErrorIs(t, refusalOf(a), kind)
		require.Equal(t, kind.Error(), refusalOf(a).Error())
	}
	a, err := refuse(&replica.NotLeadingError{Node: 1, Leader: 3})
	require.NoError(t, err)
	require.Equal(t, uint64(3), a.GetLeader())
	_, err = refuse(errors.New("other"))
	require.Error(t, err)
	require.Error(t, refusalOf(&peerpb.AskResponse{Reason: "NEW", Message: "of a newer version"}))
	_, err = (&membership{}).answer(t.Context(), 2, &peerpb.AskRequest{Question: &peerpb.AskRequest_Describe{Describe: &peerpb.NodeRecord{Node: 3}}})
	require.ErrorContains(t, err, "node 2 describes node 3")
	a, err = (&membership{}).answer(t.Context(), 2, &peerpb.AskRequest{})
	require.NoError(t, err)
	require.ErrorIs(t, refusalOf(a), kv.ErrInvalidArgument)
}

func TestTheAddressForClients(t *testing.T) {
	for _, test := range []struct{ listen, peer, want string }{
		{"127.0.0.1:7070", "db1:7100", "127.0.0.1:7070"},
		{"0.0.0.0:7070", "db1:7100", "db1:7070"},
		{"[::]:7070", "[fd00::1]:7100", "[fd00::1]:7070"},
		{"0.0.0.0:7070", "", "0.0.0.0:7070"},
	} {
		listen, err := net.ResolveTCPAddr("tcp", test.listen)
		require.NoError(t, err)
		require.Equal(t, test.want, clientAddress(listen, test.peer))
	}
	require.Empty(t, clientAddress(&net.UnixAddr{Name: "socket"}, "db1:7100"))
}

// Without a leader the nodes are described as the one that is asked sees them.
func TestTheStatusWithoutALeader(t *testing.T) {
	m := &membership{cluster: 7, node: 2}
	nodes := map[uint64]replicated.Node{1: {Peer: "a"}, 2: {Peer: "b"}, 3: {Peer: "c"}}
	own := &peerpb.NodeState{Node: 2, Committed: 9, Applied: 8, Others: []*peerpb.SeenNode{{Node: 1, Why: "refused", SilentMs: 5}, {Node: 3, SilentMs: -1}}}
	states := map[uint64]*peerpb.NodeState{2: own, 3: {Node: 3, Committed: 12, Applied: 12}}
	s := m.summary(own, states, nodes, func(uint64) bool { return true })
	require.Equal(t, service.ClusterStatus{Cluster: 7, Node: 2, Committed: 12, Nodes: []service.ClusterNode{
		{ID: 1, Peer: "a", Voter: true, Lag: 12, Silent: -1, Streams: "refused"},
		{ID: 2, Peer: "b", Voter: true, Answers: true, Applied: 8, Lag: 4},
		{ID: 3, Peer: "c", Voter: true, Answers: true, Applied: 12, Silent: -1, Streams: "no streams yet"},
	}}, s)
}
