package kvdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/forward"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// Cluster is a cluster of real nodes in the process of a test, to see what a program does when
// nodes fail. As with New, files and connections are in memory. The nodes have the numbers 0, 1 and
// so on. They choose a leader in one or two seconds of real time, at first and whenever they lose
// it.
//
// A node that misses more than some MiB of writes does not catch up: it would need a checkpoint,
// which nodes of a Cluster do not send each other.
//
// The methods are for the goroutine of the test; calls of clients may go on meanwhile.
type Cluster struct {
	t       testing.TB
	id      uint64
	client  *kvd.Client
	nodes   []*node
	network *replicated.Memory
}

// node is a node of a Cluster. Without a log it does not run.
type node struct {
	c       *Cluster
	address string
	id      uint64
	disk    *vfs.Mem
	store   *engine.Engine
	server  *service.Server
	served  chan error

	mu       sync.Mutex
	log      *replicated.Log
	pipe     *memlisten.Listener
	forwards *forward.Receiver
}

// NewCluster starts a cluster of so many nodes, at least one. When the test ends, it stops them and
// closes the clients, and fails the test if that fails. The options are those of kvd.Open, for
// the client that Client returns.
func NewCluster(t testing.TB, nodes int, opts ...kvd.Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, id: descriptor.NewID(), network: replicated.NewMemory()}
	for i := range nodes {
		c.nodes = append(c.nodes, &node{c: c, address: fmt.Sprintf("node%d:1", i), id: uint64(i + 1), disk: vfs.NewMem()})
	}
	t.Cleanup(c.stop)
	for i := range c.nodes {
		c.Start(i)
	}
	c.client = c.open(c.nodes, opts)
	return c
}

// Client returns a client of all nodes. It follows the leader.
func (c *Cluster) Client() *kvd.Client { return c.client }

// Open returns a client of one node alone, as of a program that knows one address. The node reads, and
// has the leader perform the writes of the client.
func (c *Cluster) Open(node int, opts ...kvd.Option) *kvd.Client {
	c.t.Helper()
	client := c.open(c.nodes[node:node+1], opts)
	c.t.Cleanup(func() { check(c.t, "close a client", client.Close()) })
	return client
}

func (c *Cluster) open(nodes []*node, opts []kvd.Option) *kvd.Client {
	c.t.Helper()
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.address)
	}
	client, err := kvd.Open(strings.Join(addresses, ","), append([]kvd.Option{kvd.WithDialer(c.dial), kvd.WithTimeout(testwait.Left())}, opts...)...)
	if err != nil {
		c.t.Fatalf("kvdtest: %v", err)
	}
	return client
}

var errDown = errors.New("the node does not run")

func (c *Cluster) dial(ctx context.Context, address string) (net.Conn, error) {
	for _, n := range c.nodes {
		if n.address == address {
			n.mu.Lock()
			pipe := n.pipe
			n.mu.Unlock()
			if pipe == nil {
				break
			}
			return pipe.DialContext(ctx)
		}
	}
	return nil, errDown
}

// Leader waits until a node leads, and returns which one. Another one may lead right after.
func (c *Cluster) Leader() int {
	c.t.Helper()
	leader := 0
	testwait.Until(c.t, func() bool {
		for i, n := range c.nodes {
			if log := n.running(); log != nil && log.Status().Leading {
				leader = i
				return true
			}
		}
		return false
	}, "a node leads")
	return leader
}

// Kill ends a node as kill -9 does: its connections are cut, and what it has in memory is lost.
func (c *Cluster) Kill(node int) {
	c.t.Helper()
	n := c.nodes[node]
	log := n.running()
	if log == nil {
		c.t.Fatalf("kvdtest: node %d does not run", node)
	}
	n.set(nil, nil) // no message leaves or comes any more, nor does a client
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.server.Shutdown(now); err != nil && !errors.Is(err, context.Canceled) {
		c.t.Errorf("kvdtest: cut the connections of node %d: %v", node, err)
	}
	disk := n.disk.KillImage()
	n.close()
	n.disk = disk
}

// Start starts a node that was killed.
func (c *Cluster) Start(node int) {
	c.t.Helper()
	n := c.nodes[node]
	if n.running() != nil {
		c.t.Fatalf("kvdtest: node %d runs", node)
	}
	var voters []uint64
	for _, n := range c.nodes {
		voters = append(voters, n.id)
	}
	log := replicated.New(replicated.Config{Cluster: c.id, Node: n.id, Voters: voters, Transport: c.network.Of(n.id)})
	store, err := engine.Open("data", engine.Options{
		FS: n.disk, Partitions: partitions, Replicated: log,
		MemtableBytes: memtableBytes, CacheBytes: cacheBytes, SegmentBytes: segmentBytes,
	})
	if err != nil {
		c.t.Fatalf("kvdtest: start node %d: %v", node, err)
	}
	n.store, n.served = store, make(chan error, 1)
	n.server = service.New(daemon.Store(store), service.Options{Forward: n}, daemon.Protocols()...)
	n.mu.Lock()
	n.forwards = forward.NewReceiver(n.server)
	n.mu.Unlock()
	pipe := memlisten.Listen(pipeBytes)
	go func() { n.served <- n.server.Serve(pipe) }()
	n.set(log, pipe)
}

// Isolate cuts a node off from the other nodes, until Heal. Clients still reach it; it answers no
// reads and takes no writes, and if it leads, it gives that up within seconds.
func (c *Cluster) Isolate(node int) {
	c.network.Isolate(c.nodes[node].id, true)
}

// Heal ends what Isolate began, for all nodes.
func (c *Cluster) Heal() {
	for _, n := range c.nodes {
		c.network.Isolate(n.id, false)
	}
}

// stop ends everything in order.
func (c *Cluster) stop() {
	if c.client != nil {
		check(c.t, "close the client", c.client.Close())
	}
	for _, n := range c.nodes {
		if n.running() != nil {
			check(c.t, "stop a node", n.server.Shutdown(context.Background()))
			n.set(nil, nil)
			n.close()
		}
	}
}

// running returns the log of the node, nil if it does not run.
func (n *node) running() *replicated.Log {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log
}

// set lets messages and clients reach the node, or with nil no longer.
func (n *node) set(log *replicated.Log, pipe *memlisten.Listener) {
	n.c.network.Join(n.id, log)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log, n.pipe = log, pipe
}

func (n *node) close() {
	check(n.c.t, "serve", <-n.served)
	check(n.c.t, "close the store of a node", n.store.Close())
}

// Forward implements service.Forwarder: it calls the node that leads, if messages come there.
func (n *node) Forward(ctx context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	leader, address := uint64(0), ""
	if log := n.running(); log != nil {
		leader, address = log.Leader()
	}
	refused := &kv.NotLeaderError{Leader: leader, Address: address}
	if leader == 0 || leader == n.id || !n.c.network.Connects(n.id, leader) {
		return nil, refused
	}
	to := n.c.nodes[leader-1]
	to.mu.Lock()
	receiver := to.forwards
	to.mu.Unlock()
	h := &hop{message: w.Message}
	if err := receiver.Perform(ctx, n.id, forward.HeadOf(w), h); err != nil {
		return nil, refused
	}
	return forward.AnswerOf(h.outcome, h.answer), nil
}

// hop is a write on its way from one node to another one. It implements forward.Way.
type hop struct {
	message, answer []byte
	outcome         *peerpb.ForwardOutcome
}

// Read implements forward.Way.
func (h *hop) Read() ([]byte, error) { return h.message, nil }

// Answer implements forward.Way.
func (h *hop) Answer(outcome *peerpb.ForwardOutcome, answer []byte) error {
	h.outcome, h.answer = outcome, answer
	return nil
}
