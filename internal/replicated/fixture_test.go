package replicated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// transferRate is that of all nodes of these tests.
const transferRate = 64 << 20

// cluster is a group of stores in one process, over a network in memory. It runs in a bubble of
// testing/synctest.
type cluster struct {
	t     *testing.T
	nodes []*node // of the ids 1, 2, ...
	// voters are the first nodes; a later one joins.
	voters []uint64
	tune   func(*engine.Options)

	mu   sync.Mutex
	drop func(from, to uint64, m *pb.Message) bool // nil: no message is lost
	late sync.WaitGroup                            // messages on their way: see delay
	// fetch, if not nil, is called before a file of a checkpoint is sent.
	fetch  func(from, to uint64, name string) error
	kept   int // files that were not sent, because the node has them
	events []Event
	// tamper changes a message on its way; nil: none is changed.
	tamper func(to uint64, m *pb.Message)
}

// node is a member; store and log are nil while it is stopped.
type node struct {
	c     *cluster
	id    uint64
	fs    *vfs.Mem
	lost  atomic.Uint64  // how often its directory was replaced by an empty one
	store *engine.Engine // of the goroutine of the test; others call now
	joins bool           // it is none of the first nodes
	dead  atomic.Bool    // its power is lost: no message leaves
	cuts  atomic.Uint64  // how often its power was lost

	mu      sync.Mutex
	log     *Log
	running *engine.Engine
}

// directory returns the random id of the data directory.
func (n *node) directory() uint64 { return n.id<<32 + n.lost.Load() + 1 }

// now returns the store, nil while the node is stopped.
func (n *node) now() *engine.Engine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

// startCluster starts so many stores.
func startCluster(t *testing.T, size int, tune func(*engine.Options)) *cluster {
	c := &cluster{t: t, tune: tune}
	for i := range size {
		c.nodes = append(c.nodes, &node{c: c, id: uint64(i + 1), fs: vfs.NewMem()})
	}
	c.voters = c.ids()
	for _, n := range c.nodes {
		n.start()
	}
	return c
}

func (c *cluster) ids() (ids []uint64) {
	for _, n := range c.nodes {
		ids = append(ids, n.id)
	}
	return ids
}

// open opens the store of a node, which is stopped.
func (n *node) open() error {
	voters := n.c.voters
	if n.joins {
		voters = nil
	}
	log := New(Config{Cluster: 7, Node: n.id, Voters: voters, Transport: n, Files: n.files, TransferRate: transferRate, Report: n.report, Exchange: n.exchange})
	o := engine.Options{
		FS: n.fs, Partitions: 3, MemtableBytes: 256 << 10, CacheBytes: 64 << 10, SegmentBytes: 64 << 10, LowDiskBytes: 1, Replicated: log,
	}
	if n.c.tune != nil {
		n.c.tune(&o)
	}
	n.mu.Lock()
	n.log = log
	n.mu.Unlock()
	n.dead.Store(false)
	store, err := engine.Open("data", o)
	n.mu.Lock()
	n.store, n.running = store, store
	n.mu.Unlock()
	return err
}

func (n *node) start() { require.NoError(n.c.t, n.open()) }

func (n *node) stop() {
	if n.store == nil {
		return
	}
	if err := n.store.Close(); !errors.Is(err, replica.ErrInstall) { // it would install a checkpoint at its start
		require.NoError(n.c.t, err, "node %d", n.id)
	}
	n.mu.Lock()
	n.log, n.store, n.running = nil, nil, nil
	n.mu.Unlock()
}

// powerFails makes the rest of the node's life, until it is stopped, one that no other node sees.
// Its disk is what it was after the call. What the node acknowledges from then on no client has
// received: see acknowledges.
func (n *node) powerFails() {
	n.cuts.Add(1)
	n.dead.Store(true)
}

// acknowledges calls write with the node's store. Without an error the write ended before the
// node's power was lost: the process of the node runs on for a moment after that, and may then
// sync its copy of an entry that its disk, as it was, does not hold.
func (n *node) acknowledges(write func(*engine.Engine) error) error {
	cuts, store := n.cuts.Load(), n.now()
	if store == nil {
		return kv.ErrClosed
	}
	err := write(store)
	if err == nil && n.cuts.Load() != cuts {
		return kv.ErrUncertain
	}
	return err
}

// crash stops the node as a power cut does: what was not synced is lost.
func (n *node) crash() {
	n.powerFails()
	image := n.fs.CrashImage(vfs.DropAll, nil)
	n.stop()
	n.fs = image
}

func (c *cluster) stop() {
	c.lose(nil)
	for _, n := range c.nodes {
		n.stop()
	}
	c.late.Wait()
}

// lose sets which messages are lost.
func (c *cluster) lose(drop func(from, to uint64, m *pb.Message) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop = drop
}

// cutOff loses all messages from and to a node.
func (c *cluster) cutOff(id uint64) {
	c.lose(func(from, to uint64, _ *pb.Message) bool { return from == id || to == id })
}

// Send implements replica.Transport.
func (n *node) Send(messages []*pb.Message) {
	for _, m := range messages {
		n.c.mu.Lock()
		lost := n.dead.Load() || n.c.drop != nil && n.c.drop(n.id, m.GetTo(), m)
		tamper := n.c.tamper
		to := (*node)(nil)
		if m.GetTo() <= uint64(len(n.c.nodes)) { // otherwise it was added, and is not made yet
			to = n.c.nodes[m.GetTo()-1]
		}
		n.c.mu.Unlock()
		if to == nil {
			continue
		}
		to.mu.Lock()
		log := to.log
		to.mu.Unlock()
		if !lost && log != nil && log.Judge(n.id, n.directory()) == nil && n.judges(to) {
			m = proto.Clone(m).(*pb.Message)
			if tamper != nil {
				tamper(m.GetTo(), m)
			}
			log.Deliver(m)
		}
	}
}

// judges reports whether this node sends to another one, as far as it knows that.
func (n *node) judges(to *node) bool {
	n.mu.Lock()
	log := n.log
	n.mu.Unlock()
	return log != nil && log.Judge(to.id, to.directory()) == nil
}

// exchange is Config.Exchange: it loses nothing on the way to a node that runs.
func (n *node) exchange(_ context.Context, id uint64, mine peer.Digest) (peer.Digest, error) {
	n.c.mu.Lock()
	if id > uint64(len(n.c.nodes)) {
		n.c.mu.Unlock()
		return peer.Digest{}, errors.New("the node is not made yet")
	}
	to := n.c.nodes[id-1]
	n.c.mu.Unlock()
	to.mu.Lock()
	log := to.log
	to.mu.Unlock()
	if log == nil {
		return peer.Digest{}, kv.ErrClosed
	}
	return log.Hear(n.id, mine), nil
}

// leader waits until a node other than those given takes writes, and returns it.
func (c *cluster) leader(except ...uint64) *node {
	for range 1000 {
		for _, n := range c.nodes {
			if n.store != nil && !slices.Contains(except, n.id) && n.leads() {
				return n
			}
		}
		time.Sleep(replica.TickInterval)
		synctest.Wait()
	}
	require.Fail(c.t, "no node leads")
	return nil
}

// leads reports whether the node takes writes: an invalid one is refused for that.
func (n *node) leads() bool {
	_, err := n.store.Put(c(n), nil, nil, kv.WriteOptions{})
	return !errors.Is(err, kv.ErrNotLeader)
}

func c(n *node) context.Context { return n.c.t.Context() }

// follower returns a node that does not lead.
func (c *cluster) follower() *node {
	for _, n := range c.nodes {
		if n.store != nil && !n.leads() {
			return n
		}
	}
	require.Fail(c.t, "all nodes lead")
	return nil
}

func (n *node) put(key, value string) kv.SeqNum {
	version, err := n.store.Put(c(n), []byte(key), []byte(value), kv.WriteOptions{})
	require.NoError(n.c.t, err)
	return version
}

// get returns a value, "" if the key is absent.
func (n *node) get(key string) string {
	item, err := n.store.Get(c(n), []byte(key))
	if err != nil {
		require.ErrorIs(n.c.t, err, kv.ErrNotFound, "node %d", n.id)
	}
	return string(item.Value)
}

// digest returns the version of a scan and all that it found.
func (n *node) digest() (kv.SeqNum, string) {
	s, err := n.store.Scan(c(n), kv.Range{}, kv.ScanOptions{})
	require.NoError(n.c.t, err, "node %d", n.id)
	var all strings.Builder
	for s.Next() {
		i := s.Item()
		fmt.Fprintf(&all, "%s=%s @%d until %d\n", i.Key, i.Value, i.Version, i.Expiry)
	}
	require.NoError(n.c.t, s.Err())
	require.NoError(n.c.t, s.Close())
	return s.Version(), all.String()
}

// agree fails unless all running nodes come to the same state at the same version. Writes that
// callers have given up may still be committed meanwhile.
func (c *cluster) agree() string {
	for range 100 {
		if state, same := c.compare(); same {
			return state
		}
		time.Sleep(replica.TickInterval)
	}
	require.Fail(c.t, "the nodes come to no common version")
	return ""
}

// compare reports whether all running nodes are at the same version. They must then have the
// same state.
func (c *cluster) compare() (string, bool) {
	version, want := c.leader().digest()
	for _, n := range c.nodes {
		if n.store == nil {
			continue
		}
		at, got := n.digest()
		if at != version {
			return "", false
		}
		require.Equal(c.t, want, got, "node %d", n.id)
	}
	return want, true
}

// faultyDisks are the file systems of a cluster's nodes, in the order of the nodes.
type faultyDisks []*faultfs.FS

// wrap is an option of startCluster.
func (d *faultyDisks) wrap(o *engine.Options) {
	disk := faultfs.Wrap(o.FS, nil)
	*d = append(*d, disk)
	o.FS = disk
}
