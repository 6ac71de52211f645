package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/testrelay"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func initNode(fsys vfs.FS, node descriptor.Node) error {
	partitions, err := InitNode(fsys, "data", node, 2)
	if err == nil && partitions != 2 {
		err = fmt.Errorf("%d partitions", partitions)
	}
	return err
}

// clusterOf makes the nodes of a cluster on disks in memory, and returns how to start each.
func clusterOf(t *testing.T, size uint64) (starts []func() *running, logged func(node int, message string) []observer.LoggedEntry) {
	return clusterOn(t, make([]*vfs.Mem, size))
}

// calmNodes starts three nodes, and waits until they are calm.
func calmNodes(t *testing.T) (nodes []*running) {
	starts, _ := clusterOf(t, 3)
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	nodes[0].status(calm)
	return nodes
}

// clusterOn is clusterOf that tells the disks.
func clusterOn(t *testing.T, disks []*vfs.Mem) (starts []func() *running, logged func(node int, message string) []observer.LoggedEntry) {
	size := uint64(len(disks))
	node := descriptor.Node{Cluster: descriptor.NewID(), Members: map[uint64]string{}}
	relays, logs := map[uint64]*testrelay.Relay{}, make([]*observer.ObservedLogs, size)
	for id := uint64(1); id <= size; id++ {
		relays[id] = testrelay.New(t)
		node.Members[id] = relays[id].Addr()
	}
	for id := uint64(1); id <= size; id++ {
		fsys := vfs.NewMem()
		disks[id-1] = fsys
		mine := node
		mine.Node = id
		require.NoError(t, initNode(fsys, mine))
		require.ErrorIs(t, initNode(fsys, mine), kv.ErrInvalidArgument, "it is one already")
		starts = append(starts, func() *running {
			r, lines := startNode(t, fsys, relays[id])
			logs[id-1] = lines
			return r
		})
	}
	return starts, func(node int, message string) []observer.LoggedEntry { return logs[node].FilterMessage(message).All() }
}

// startNode starts a node, which the others reach by a relay.
func startNode(t *testing.T, fsys vfs.FS, d *testrelay.Relay) (*running, *observer.ObservedLogs) {
	core, lines := observer.New(zapcore.InfoLevel)
	c := testConfig(zap.New(core), fsys)
	c.Cluster, c.ClusterListen = true, "127.0.0.1:0"
	r := start(t, c)
	listen := lines.FilterMessage("node of a cluster").All()[0].ContextMap()["listen"].(string)
	d.To(listen)
	return r, lines
}

// putAnywhere writes by whichever of the nodes leads, and returns its index.
func putAnywhere(t *testing.T, nodes []*running, key string) (leader int) {
	testwait.Until(t, func() bool {
		for i, r := range nodes {
			if r == nil {
				continue
			}
			term := termOf(t, r)
			if term == "" {
				continue
			}
			err := r.client.Put(t.Context(), []byte(key), []byte("value of "+key))
			if err == nil {
				leader = i
				return termOf(t, r) == term // otherwise another node may have done it
			}
			require.True(t, errors.Is(err, kvd.ErrReadOnly) || errors.Is(err, kvd.ErrUncertain) || errors.Is(err, kvd.ErrUnavailable), "%v", err)
		}
		return false
	})
	return leader
}

var leads = regexp.MustCompile(`\[\+\] cluster: this node leads in term (\d+)`)

// termOf returns the term in which a node leads, "" if it does not.
func termOf(t *testing.T, r *running) string {
	code, page := r.page("/readyz?verbose")
	m := leads.FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	require.Equal(t, http.StatusOK, code)
	return m[1]
}

// Three services replicate: what one has acknowledged can be read from all, also after the one
// that led has ended, and from that when it has started again.
func TestCluster(t *testing.T) {
	starts, logged := clusterOf(t, 3)
	var nodes []*running
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	read := func(key string) {
		for i, r := range nodes {
			if r != nil {
				value, err := r.client.Get(t.Context(), []byte(key))
				require.NoError(t, err, "node %d", i+1)
				require.Equal(t, "value of "+key, string(value))
			}
		}
	}
	leader := 0
	testwait.Until(t, func() bool { // again if the nodes elect in between, as after a pause
		leader = putAnywhere(t, nodes, "a")
		read("a")
		term := termOf(t, nodes[leader])
		for i, r := range nodes { // each takes writes, and has those done by the one that leads
			key := fmt.Sprintf("by node %d", i+1)
			if err := r.client.Put(t.Context(), []byte(key), []byte("value of "+key)); err != nil {
				return false
			}
			read(key)
		}
		_, page := nodes[(leader+1)%3].page("/status.txt")
		if term == "" || termOf(t, nodes[leader]) != term {
			return false
		}
		return strings.Contains(page, fmt.Sprintf("cluster: node %d leads in term ", leader+1)) &&
			strings.Contains(page, fmt.Sprintf("node %d is connected", leader+1))
	})
	testwait.Until(t, func() bool {
		followers := 0
		for i, r := range nodes {
			code, ready := r.page("/readyz?verbose")
			if code != http.StatusOK || r.client.Ping(t.Context()) != nil {
				return false
			}
			require.Contains(t, ready, "[+] cluster: ")
			require.NotEmpty(t, logged(i, "the node can answer reads"))
			_, page := r.page("/metrics")
			require.Contains(t, page, "\nkvd_wal_segments 1\n")
			require.Contains(t, page, fmt.Sprintf("\nkvd_cluster_peer_connected{node=\"%d\"} ", (i+1)%3+1))
			followers += strings.Count(page, `kvd_cluster_role{role="follower"} 1`)
		}
		return followers == 2
	})
	testwait.Until(t, func() bool {
		require.NoError(t, nodes[leader].end())
		nodes[leader] = nil
		next := putAnywhere(t, nodes, "b")
		require.NotEqual(t, leader, next)
		tried := append(logged(leader, "the leadership was handed over"), logged(leader, "the leadership was not handed over; the other nodes elect a leader")...)
		if len(tried) == 0 { // another node led already when this one ended
			nodes[leader] = starts[leader]()
			leader = putAnywhere(t, nodes, "b")
			return false
		}
		require.Len(t, tried, 1)
		return true
	})
	testwait.Until(t, func() bool {
		told := logged(putAnywhere(t, nodes, "b"), "leader of the cluster")
		return len(told) > 0 && told[len(told)-1].ContextMap()["this"] == true
	})
	read("b")
	nodes[leader] = starts[leader]()
	read("a")
	read("b")
	require.NoError(t, nodes[0].end())
	require.NoError(t, nodes[1].end())
	testwait.Until(t, func() bool {
		code, page := nodes[2].page("/readyz?verbose")
		return code == http.StatusServiceUnavailable && strings.Contains(page, "[-] cluster: no node leads") && strings.Contains(page, "node 1 at ")
	})
	testwait.Until(t, func() bool {
		err := nodes[2].client.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "the server is up but not ready: no node leads")
	})
	code, _ := nodes[2].page("/livez")
	require.Equal(t, http.StatusOK, code)
	assert.NoError(t, nodes[2].end())
}

func TestANodeThatCannotAnswerReads(t *testing.T) {
	status := replica.Status{Leader: 2, Committed: 70, Applied: replica.Position{Index: 60}}
	require.NoError(t, whyUnready(status, true, readsLate))
	const behind = "this node has applied the log up to entry 60, and knows 70 to be committed; node 2 leads"
	require.EqualError(t, whyUnready(status, true, 2*readsLate), "reads have waited for 6s: "+behind)
	require.EqualError(t, whyUnready(status, false, 0), "it has not caught up with the others since its start: "+behind)
	status.Leader = 0
	require.Equal(t, errLeaderless, whyUnready(status, true, 0))
	require.NoError(t, new(clusterNode).unready(), "a single node")
}

func TestRolesOfANode(t *testing.T) {
	members := []replica.Member{{ID: 1, Voter: true}, {ID: 2, Learner: true}}
	require.Equal(t, "leader", roleOf(1, &replica.Status{Leading: true}, members))
	require.Equal(t, "follower", roleOf(1, &replica.Status{}, members))
	require.Equal(t, "learner", roleOf(2, &replica.Status{}, members))
	require.Equal(t, "candidate", roleOf(1, &replica.Status{Campaigns: true}, members))
}

func TestStoresThatAreNoNode(t *testing.T) {
	fsys := vfs.NewMem()
	node := descriptor.Node{Cluster: 1, Node: 1, Members: map[uint64]string{1: "127.0.0.1:1"}}
	require.ErrorIs(t, initNode(fsys, descriptor.Node{}), kv.ErrInvalidArgument)
	run := func(fsys vfs.FS, change func(*Config)) error {
		c := testConfig(zaptest.NewLogger(t), fsys)
		change(&c)
		return Run(t.Context(), c, nil)
	}
	err := run(fsys, func(c *Config) { c.Cluster = true })
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "kvd cluster init makes one")
	require.NoError(t, initNode(fsys, node))
	require.ErrorContains(t, run(fsys, func(*Config) {}), "pass --cluster")
	err = run(fsys, func(c *Config) { c.Cluster, c.ClusterListen = true, "0.0.0.0:0" })
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "name the certificate of this node")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, busy.Close()) }()
	require.ErrorIs(t, run(fsys, func(c *Config) { c.Cluster, c.ClusterListen = true, busy.Addr().String() }), ErrListen)

	remote := vfs.NewMem()
	require.NoError(t, initNode(remote, descriptor.Node{Cluster: 1, Node: 1, Members: map[uint64]string{1: "127.0.0.1:1", 2: "10.0.0.2:7"}}))
	err = run(remote, func(c *Config) { c.Cluster, c.ClusterListen = true, "127.0.0.1:0" })
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "node 2")

	// NODE of another store.
	other := descriptor.Node{StoreID: 9, Cluster: 1, Node: 1, Members: node.Members}
	require.NoError(t, vfs.WriteAtomic(fsys, "data/NODE", other.Encode()))
	require.ErrorIs(t, run(fsys, func(c *Config) { c.Cluster = true }), kv.ErrCorrupt)
	require.ErrorIs(t, initNode(fsys, node), kv.ErrCorrupt)

	// The store of a single node.
	single := vfs.NewMem()
	r := start(t, testConfig(zaptest.NewLogger(t), single))
	require.NoError(t, r.end())
	require.ErrorIs(t, initNode(single, node), kv.ErrInvalidArgument)
}

// A call that was interrupted after its decision is finished by the next one, and only by that for the
// same node.
func TestAConversionIsFinished(t *testing.T) {
	fsys := vfs.NewMem()
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("value of a")))
	require.NoError(t, r.end())
	d := testrelay.New(t)
	node := descriptor.Node{Node: 3, Members: map[uint64]string{3: d.Addr()}}
	decided := node
	decided.Cluster = 5
	require.NoError(t, replicated.Convert("data", engine.Options{FS: fsys}, decided))
	require.True(t, descriptor.HasOwnLog(fsys, "data"))
	for _, change := range []func(*descriptor.Node){
		func(n *descriptor.Node) { n.Cluster = 6 },
		func(n *descriptor.Node) { n.Members = map[uint64]string{3: "other:1"} },
		func(n *descriptor.Node) { n.Node, n.Members = 4, map[uint64]string{4: "four:1"} },
	} {
		other := node
		change(&other)
		_, err := ConvertNode(fsys, "data", other, nil)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "is node 3 of cluster 0000000000000005 already")
	}
	made, err := ConvertNode(fsys, "data", node, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(5), made.Cluster)
	require.False(t, descriptor.HasOwnLog(fsys, "data"))
	_, err = ConvertNode(fsys, "data", node, nil)
	require.ErrorContains(t, err, "already; start it with kvd serve --cluster")
	r, _ = startNode(t, fsys, d)
	putAnywhere(t, []*running{r}, "b")
	value, err := r.client.Get(t.Context(), []byte("a"))
	require.NoError(t, err)
	require.Equal(t, "value of a", string(value))
	require.NoError(t, r.end())

	// Without an id one is drawn.
	fsys = vfs.NewMem()
	require.NoError(t, start(t, testConfig(zaptest.NewLogger(t), fsys)).end())
	made, err = ConvertNode(fsys, "data", node, nil)
	require.NoError(t, err)
	require.NotZero(t, made.Cluster)
}

func TestClusterSettings(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"pass --cluster too":  func(c *Config) { c.ClusterListen = "127.0.0.1:1" },
		"--cluster-advertise": func(c *Config) { c.ClusterAdvertise = "db1:7070" },
		"give all, or none":   func(c *Config) { c.Cluster, c.ClusterCert = true, "x" },
		"leave out --dev":     func(c *Config) { c.Cluster, c.Dev = true, true },
		"made of the log of a single node: leave out --archive, and run kvd backup": func(c *Config) { c.Cluster, c.Archive = true, "x" },
		"are for a node of a cluster":     func(c *Config) { c.ClusterCA = "x" },
		"0.0.0.0 means no single machine": func(c *Config) { c.Cluster, c.ClusterAdvertise = true, "0.0.0.0:7070" },
	} {
		c := testConfig(zaptest.NewLogger(t), vfs.NewMem())
		change(&c)
		err := c.Check()
		require.ErrorIs(t, err, ErrUsage)
		require.ErrorContains(t, err, want)
	}
	c := testConfig(zaptest.NewLogger(t), vfs.NewMem())
	c.Cluster, c.ClusterCert, c.ClusterKey, c.ClusterCA = true, "missing", "missing", "missing"
	require.ErrorIs(t, Run(t.Context(), c, nil), ErrUsage)
}

// A cluster of one node, with certificates.
func TestClusterOfOne(t *testing.T) {
	dir := t.TempDir()
	ca, pairs, err := certificate.DevNodes(5, []uint64{1}, time.Now(), time.Hour)
	require.NoError(t, err)
	for name, data := range map[string][]byte{"ca.pem": ca, "node.pem": pairs[1].Certificate, "node.key": pairs[1].Key} {
		require.NoError(t, vfs.WriteAtomic(vfs.OS, dir+"/"+name, data))
	}
	fsys := vfs.NewMem()
	require.NoError(t, initNode(fsys, descriptor.Node{Cluster: 5, Node: 1, Members: map[uint64]string{1: "10.0.0.1:7"}}))
	c := testConfig(zaptest.NewLogger(t), fsys)
	c.Cluster, c.ClusterListen = true, "127.0.0.1:0"
	c.ClusterCert, c.ClusterKey, c.ClusterCA = dir+"/node.pem", dir+"/node.key", dir+"/ca.pem"
	r := start(t, c)
	putAnywhere(t, []*running{r}, "a")
	require.NoError(t, r.end())
}
