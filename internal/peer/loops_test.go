package peer

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

// clusterNode is a node with a loop, a log on a disk that can crash, and a network of sockets.
type clusterNode struct {
	id      uint64
	disk    *vfs.Mem
	log     *raftlog.Log
	loop    *replica.Loop
	network *Network
	begin   replica.Position
	boot    uint64

	mu      sync.Mutex
	records []string
	tenure  replica.Tenure
	ended   map[uint64]replica.Result
}

func (c *clusterNode) Apply(_, _ uint64, record []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, string(record))
	return nil
}

func (c *clusterNode) Room() <-chan struct{} { return nil }

func (c *clusterNode) Configure(uint64, uint64, *pb.ConfState, string) error { return nil }

func (c *clusterNode) Lead(t replica.Tenure) { c.setTenure(t) }
func (c *clusterNode) Lost(replica.Tenure)   { c.setTenure(replica.Tenure{}) }

func (c *clusterNode) setTenure(t replica.Tenure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenure = t
}

func (c *clusterNode) Ended(outcomes []replica.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range outcomes {
		c.ended[o.ID] = o.Result
	}
}

func (c *clusterNode) state() (records []string, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records), c.tenure != (replica.Tenure{})
}

// Deliver gives a message to the loop that runs now.
func (c *clusterNode) Deliver(m *pb.Message) bool {
	c.mu.Lock()
	loop := c.loop
	c.mu.Unlock()
	return loop.Deliver(m)
}

// Gone tells the loop that runs now.
func (c *clusterNode) Gone(node uint64) {
	c.mu.Lock()
	loop := c.loop
	c.mu.Unlock()
	loop.Gone(node)
}

// put replicates a record, and reports whether it is committed.
func (c *clusterNode) put(t *testing.T, record string) bool {
	c.mu.Lock()
	tenure := c.tenure
	c.mu.Unlock()
	if tenure == (replica.Tenure{}) {
		return false
	}
	id, err := c.loop.Propose(tenure, []byte(record))
	require.NoError(t, err)
	var result replica.Result
	testwait.Until(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		result = c.ended[id]
		return result != 0
	})
	return result == replica.Committed
}

// start starts the node from its disk.
func (c *clusterNode) start(t *testing.T) {
	var err error
	c.log, _, err = raftlog.Open(raftlog.Options{FS: c.disk, Dir: "data/raft", StoreID: c.id, Fresh: c.boot == 0})
	require.NoError(t, err)
	if c.boot == 0 {
		c.begin, err = replica.Bootstrap(c.log, testGroup, []uint64{1, 2, 3})
		require.NoError(t, err)
	}
	c.boot++
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records, c.ended = nil, map[uint64]replica.Result{}
	core, err := replica.New(replica.Config{
		ID: c.id, Boot: c.boot, Log: c.log, Group: testGroup, Start: c.begin, Machine: c, Transport: c.network,
	})
	require.NoError(t, err)
	c.loop = replica.Start(core, c)
}

// cluster is three nodes, each of which calls each other through a proxy of its own.
type cluster struct {
	nodes   []*clusterNode
	proxies map[[2]uint64]*proxy
}

func startCluster(t *testing.T) *cluster {
	c := &cluster{proxies: map[[2]uint64]*proxy{}}
	for id := uint64(1); id <= 3; id++ {
		n := &clusterNode{id: id, disk: vfs.NewMem()}
		require.NoError(t, n.disk.MkdirAll("data"))
		require.NoError(t, n.disk.SyncDir("/"))
		var err error
		n.network, err = New(options(id))
		require.NoError(t, err)
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		addresses := map[uint64]string{}
		for _, other := range c.nodes {
			p := newProxy(t, other.network.Addr())
			c.proxies[[2]uint64{n.id, other.id}] = p
			addresses[other.id] = p.addr()
		}
		require.NoError(t, n.network.SetMembers(addresses))
		n.start(t)
		n.network.Start(n)
		t.Cleanup(func() {
			n.network.Close()
			n.loop.Stop()
			require.NoError(t, n.log.Close())
		})
	}
	return c
}

// isolate cuts all connections of a node, or lets them be made again.
func (c *cluster) isolate(id uint64, cut bool) {
	for link, p := range c.proxies {
		if link[0] == id || link[1] == id {
			p.setCut(cut)
		}
	}
}

// write replicates a record by whichever of the nodes leads.
func (c *cluster) write(t *testing.T, record string, nodes ...*clusterNode) (leader *clusterNode) {
	testwait.Until(t, func() bool {
		for _, n := range nodes {
			if n.put(t, record) {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// same waits until all nodes have applied what one of them has.
func (c *cluster) same(t *testing.T, want []string) {
	defer func() {
		if t.Failed() {
			for _, n := range c.nodes {
				records, leads := n.state()
				t.Logf("node %d leads %v, has %d of %d records, %+v; %+v; %v", n.id, leads, len(records), len(want), n.loop.Status(), n.network.Status(), records)
			}
		}
	}()
	testwait.Until(t, func() bool {
		for _, n := range c.nodes {
			if records, _ := n.state(); !slices.Equal(want, slices.Compact(records)) { // an uncertain one was sent again
				return false
			}
		}
		return true
	})
}

// Three nodes replicate over sockets; a leader that is cut off is replaced, and catches up
// afterwards, as does a node that has lost power.
func TestThreeNodes(t *testing.T) {
	c := startCluster(t)
	var want []string
	write := func(nodes ...*clusterNode) *clusterNode {
		want = append(want, fmt.Sprintf("record %d", len(want)))
		return c.write(t, want[len(want)-1], nodes...)
	}
	leader := write(c.nodes...)
	for range 20 {
		leader = write(c.nodes...) // the nodes may elect in between
	}
	c.same(t, want)
	for _, n := range c.nodes {
		require.NoError(t, n.loop.Read(testwait.Context(t)))
	}

	c.isolate(leader.id, true)
	others := slices.DeleteFunc(slices.Clone(c.nodes), func(n *clusterNode) bool { return n == leader })
	next := write(others...)
	require.NotEqual(t, leader, next)
	for range 20 {
		next = write(others...)
	}
	c.isolate(leader.id, false)
	c.same(t, want)
	require.NoError(t, leader.loop.Read(testwait.Context(t)), "a follower reads by the new leader")

	// A follower loses power; what it has acknowledged is on its disk.
	follower := others[0]
	if follower == next {
		follower = others[1]
	}
	follower.loop.Stop()
	image := follower.disk.CrashImage(vfs.DropAll, nil)
	require.NoError(t, follower.log.Close())
	write(c.nodes...)
	follower.disk = image
	follower.start(t)
	write(c.nodes...)
	c.same(t, want)

	testwait.Until(t, func() bool { // a transfer may fail, as by an election in between
		leader := write(c.nodes...)
		to, err := leader.loop.TransferTo(testwait.Context(t), follower.id)
		if leader == follower {
			require.Error(t, err)
			_, _ = follower.loop.TransferTo(testwait.Context(t), next.id)
			return false
		}
		if err != nil {
			return false
		}
		require.Equal(t, follower.id, to)
		return follower == write(c.nodes...)
	})
	c.same(t, want)
	for _, s := range next.network.Status() {
		require.NotZero(t, s.Sent)
		require.NotZero(t, s.Received)
	}
}
