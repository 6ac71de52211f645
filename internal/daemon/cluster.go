package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/forward"
	"github.com/kvd-db/kvd/internal/vfs"
)

// clusterNode is the part of the process that belongs to a cluster.
type clusterNode struct {
	tls *certificate.Server // nil: the nodes are on loopback

	mu      sync.Mutex
	closed  bool
	node    uint64        // id
	network *peer.Network // nil: the store is alone
	log     *replicated.Log
	life    context.Context // until close
	end     context.CancelFunc
	nodes   *membership
	running sync.WaitGroup

	watched  atomic.Bool               // the store is open, and so is the log
	asked    atomic.Pointer[time.Time] // when the oldest probe without an answer began; nil: there is none
	answered atomic.Bool               // a probe was
}

// checkCluster refuses settings that do not fit a node of a cluster.
func (c *Config) checkCluster() error {
	files := 0
	for _, name := range []string{c.ClusterCert, c.ClusterKey, c.ClusterCA} {
		if name != "" {
			files++
		}
	}
	switch {
	case !c.Cluster && (files > 0 || c.ClusterListen != "" || c.ClusterAdvertise != ""):
		return fmt.Errorf("%w: --cluster-listen, --cluster-advertise, --cluster-cert, --cluster-key and --cluster-ca are for a node of a cluster: pass --cluster too", ErrUsage)
	case files != 0 && files != 3:
		return fmt.Errorf("%w: --cluster-cert, --cluster-key and --cluster-ca belong together; give all, or none", ErrUsage)
	case c.ClusterAdvertise != "" && descriptor.CheckAddress(c.ClusterAdvertise) != nil:
		return fmt.Errorf("%w: --cluster-advertise: %w", ErrUsage, descriptor.CheckAddress(c.ClusterAdvertise))
	case c.Cluster && c.Dev:
		return fmt.Errorf("%w: --cluster needs a store on disk; leave out --dev", ErrUsage)
	case c.Cluster && c.Archive != "":
		return fmt.Errorf("%w: a node of a cluster has no archive, since that is made of the log of a single node: leave out --archive, and run kvd backup of a node as often as writes may be lost "+
			"if all nodes are: it copies only what is new", ErrUsage)
	}
	return nil
}

// openClusterTLS reads the certificates with which the nodes know each other.
func (s *process) openClusterTLS() (err error) {
	c := &s.config
	if c.ClusterCert == "" {
		return nil
	}
	files := certificate.Files{Certificate: c.ClusterCert, Key: c.ClusterKey, ClientCA: c.ClusterCA}
	s.cluster.tls, err = certificate.Open(vfs.OS, files, func(err error) {
		if err != nil {
			s.log.Error("new certificates of the cluster cannot be used; the old ones count", zap.Error(err))
			return
		}
		s.log.Info("new certificates of the cluster count", zap.Time("expire", s.cluster.tls.Ends()))
	})
	if err != nil {
		return fmt.Errorf("%w: certificates of the cluster: %w", ErrUsage, err)
	}
	return nil
}

// openCluster makes the network and the log of a node of a cluster, if the store is one.
func (s *process) openCluster(o *engine.Options) error {
	c := &s.config
	if !c.Cluster {
		if _, err := s.disk.fs.Stat(descriptor.NodePath(c.Data)); err == nil {
			return fmt.Errorf("%w: --data %s is a node of a cluster: pass --cluster", ErrUsage, c.Data)
		}
		return nil // opening the store tells what is wrong with it
	}
	node, store, err := readNode(s.disk.fs, c.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: --data %s is no node of a cluster: kvd cluster init makes one, with --from-existing of a store with data, or kvd cluster join. If it was one, its data is lost: "+
			"it must not take part under its old id; replace it by kvd cluster join --replace", ErrUsage, c.Data)
	case err != nil:
		return err
	}
	listen := c.ClusterListen
	if listen == "" {
		listen = node.Members[node.Node]
	}
	network, err := peer.New(peer.Options{
		Cluster: node.Cluster, Node: node.Node, Group: replicated.Group, Store: node.StoreID, Listen: listen, TLS: s.cluster.tls, Report: s.peerEvent,
		Layout: peer.Layout{Partitions: store.Partitions, Hash: store.Hash},
	})
	if err != nil {
		return clusterUsage(err)
	}
	for id, address := range node.Members {
		if err := network.CheckSecured(address); err != nil {
			network.Close()
			return clusterUsage(fmt.Errorf("node %d: %w", id, err))
		}
	}
	next := slices.Max(slices.Collect(maps.Keys(node.Members))) + 1
	entries := entryBytes(o.CacheBytes)
	o.CacheBytes -= entries
	follows := &follower{network: network, former: node.Members, next: next, logger: s.log}
	replicatedLog := replicated.New(replicated.Config{
		Cluster: node.Cluster, Node: node.Node, Addresses: node.Members, Incarnation: node.Incarnation, Transport: network,
		EntryBytes: entries, Files: filesOf(network), TransferRate: c.TransferRate, Report: s.checkpointEvent,
		Exchange: network.Compare, Compared: s.compared, HandedOver: s.handedOver,
		Follow: follows.follow,
	})
	follows.log = replicatedLog
	forwards := &forwarding{
		node: node.Node, leads: replicatedLog.Leads, address: replicatedLog.Address,
		send: func(ctx context.Context, leader uint64, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
			outcome, answer, err := network.Forward(ctx, leader, forward.HeadOf(w), w.Message)
			if err != nil {
				return nil, err
			}
			return forward.AnswerOf(outcome, answer), nil
		},
	}
	serveFiles(network, replicatedLog)
	network.Judge(replicatedLog.Judge)
	network.SetCompare(replicatedLog.Hear)
	s.cluster.nodes = &membership{
		cluster: node.Cluster, node: node.Node, partitions: store.Partitions, version: Build().Version, network: network, log: replicatedLog, follows: follows, forwards: forwards, noted: node,
		self: replicated.Node{Store: node.StoreID, Client: cmp.Or(c.ClusterAdvertise, clientAddress(s.listen.Addr(), node.Members[node.Node]))},
	}
	if !s.cluster.use(node.Node, network, replicatedLog) {
		return kv.ErrClosed
	}
	o.Replicated = replicatedLog
	s.log.Info("node of a cluster", zap.String("cluster", fmt.Sprintf("%016x", node.Cluster)), zap.Uint64("node", node.Node),
		zap.Stringer("incarnation", node.Incarnation), zap.Int("nodes", len(node.Members)), zap.String("listen", network.Addr()))
	if n := node.Incarnation.Recoveries; n > 0 {
		s.log.Warn("the cluster was recovered from a lost majority: nodes and clients that know another incarnation are refused; no other node may have been recovered",
			zap.Stringer("incarnation", node.Incarnation), zap.Uint32("recoveries", n))
	}
	return nil
}

// clusterUsage says that a setting is wrong, if it is.
func clusterUsage(err error) error {
	if errors.Is(err, kv.ErrInvalidArgument) {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return fmt.Errorf("%w: %w; %s with --cluster-listen", ErrListen, err, listenAdvice(err))
}

// addr returns where this node listens for the others, or did; empty if the store is alone.
func (c *clusterNode) addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.network == nil {
		return ""
	}
	return c.network.Addr()
}

// use keeps the network, or closes it if the process has ended meanwhile.
func (c *clusterNode) use(node uint64, network *peer.Network, log *replicated.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		network.Close()
		return false
	}
	c.node, c.network, c.log = node, network, log
	c.life, c.end = context.WithCancel(context.Background())
	return true
}

// handOverWait bounds how long a stop waits until another node leads. That takes a few
// milliseconds; after an election timeout the other node has failed to.
const handOverWait = time.Second

// handOver lets another node lead before this one ends, and before it refuses calls: otherwise the others
// would miss it for an election timeout first, and no write would succeed until it has ended.
func (s *process) handOver() {
	s.cluster.mu.Lock()
	log := s.cluster.log
	s.cluster.mu.Unlock()
	if log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverWait)
	defer cancel()
	switch leader, err := log.HandOver(ctx); {
	case err != nil:
		s.log.Warn("the leadership was not handed over; the other nodes elect a leader", zap.Error(err))
	case leader != 0:
		s.log.Info("the leadership was handed over", zap.Uint64("node", leader))
	}
}

// follow hands the leadership over, and again whenever this node leads until end is called: while a stop
// waits for calls in flight, this node refuses all others, so it must not be the one that leads.
func (s *process) follow() (end func()) {
	s.handOver()
	s.cluster.mu.Lock()
	log := s.cluster.log
	s.cluster.mu.Unlock()
	if log == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	now := log.Leads()
	following.Go(func() {
		for {
			select {
			case <-now.Changed:
			case <-ctx.Done():
				return
			}
			if now = log.Leads(); now.Open && !s.abandoned() {
				s.handOver()
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}

func (c *clusterNode) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.network == nil {
		return
	}
	c.end()
	c.running.Wait()
	c.network.Close()
}

// peerEvent logs a change in the connections to other nodes.
func (s *process) peerEvent(e peer.Event) {
	switch {
	case e.Node == 0:
		s.log.Warn("a call was refused", zap.Error(e.Err))
	case errors.Is(e.Err, peer.ErrExpelled):
		s.expel(e.Err)
	case e.Err != nil:
		s.log.Warn("no connection to a node", zap.Uint64("node", e.Node), zap.String("lane", e.Lane), zap.Error(e.Err))
	default:
		s.log.Info("connected to a node", zap.Uint64("node", e.Node), zap.String("lane", e.Lane))
	}
}

// readNode reads NODE and STORE of a data directory.
func readNode(fsys vfs.FS, dir string) (node descriptor.Node, store descriptor.Descriptor, err error) {
	if store, err = descriptor.Read(fsys, dir); err == nil {
		node, err = descriptor.ReadNode(fsys, dir, store.StoreID)
	}
	return node, store, err
}

// CheckNewNode returns an error if a data directory belongs to a node of a cluster already.
//
// Errors: kv.ErrInvalidArgument; those of the file system.
func CheckNewNode(fsys vfs.FS, dir string) error {
	there, _, err := readNode(fsys, dir)
	switch {
	case err == nil:
		return alreadyNode(dir, &there)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

func alreadyNode(dir string, n *descriptor.Node) error {
	return fmt.Errorf("%w: %s is node %d of cluster %016x already; start it with kvd serve --cluster", kv.ErrInvalidArgument, dir, n.Node, n.Cluster)
}

// InitNode makes a store that is one of the first nodes of a cluster: all of them are the
// members of node, and vote. All need the same members and partitions; 0 means what
// engine.Options says, which depends on the machine. InitNode returns the number of partitions.
// The directory holds no store yet, or one that an interrupted call with the same arguments has
// made.
//
// Errors: kv.ErrInvalidArgument; those of engine.Open and of the file system.
func InitNode(fsys vfs.FS, dir string, node descriptor.Node, partitions int) (int, error) {
	return makeNode(fsys, dir, node, partitions, slices.Sorted(maps.Keys(node.Members)))
}

// JoinNode makes a store that is a node which was added to a cluster. It begins where the history
// of the cluster does, with the voters of then, and gets everything else from the other nodes. If the
// history begins with data there are none, and it begins with nothing.
//
// Errors: those of InitNode.
func JoinNode(fsys vfs.FS, dir string, node descriptor.Node, partitions int, first []uint64) error {
	_, err := makeNode(fsys, dir, node, partitions, first)
	return err
}

// ConvertNode makes the store of a single node, in a data directory that no process uses, the first
// node of a new cluster, in place: see replicated.Convert. An id of the cluster is drawn if it is 0.
// ConvertNode returns the node. A call that was interrupted is repeated: if the store was the node by
// then, only what is left of before is removed.
//
// Errors: kv.ErrInvalidArgument if the store is another node already; those of replicated.Convert
// and engine.Open.
func ConvertNode(fsys vfs.FS, dir string, node descriptor.Node, events *event.Listener) (descriptor.Node, error) {
	there, _, err := readNode(fsys, dir)
	same := there.Node == node.Node && (there.Cluster == node.Cluster || node.Cluster == 0) && maps.Equal(there.Members, node.Members)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if node.Cluster == 0 {
			node.Cluster = descriptor.NewID()
		}
		err = replicated.Convert(dir, engine.Options{FS: fsys, Events: events}, node)
	case err == nil && !(same && descriptor.HasOwnLog(fsys, dir)):
		err = alreadyNode(dir, &there)
	}
	if err != nil {
		return node, err
	}
	node, _, err = readNode(fsys, dir)
	if err != nil {
		return node, err
	}
	log := replicated.New(replicated.Config{Cluster: node.Cluster, Node: node.Node, Addresses: node.Members})
	e, err := engine.Open(dir, engine.Options{FS: fsys, Replicated: log})
	if err == nil {
		err = e.Close()
	}
	return node, err
}

func makeNode(fsys vfs.FS, dir string, node descriptor.Node, partitions int, first []uint64) (int, error) {
	if err := node.Check(); err != nil {
		return 0, err
	}
	if err := CheckNewNode(fsys, dir); err != nil {
		return 0, err
	}
	alone := replicated.New(replicated.Config{Cluster: node.Cluster, Node: node.Node, Voters: first, Addresses: node.Members})
	e, err := engine.Open(dir, engine.Options{FS: fsys, Partitions: partitions, Replicated: alone})
	if err != nil {
		return 0, err
	}
	if err := e.Close(); err != nil {
		return 0, err
	}
	d, err := descriptor.Read(fsys, dir)
	if err != nil {
		return 0, err
	}
	node.StoreID = d.StoreID
	return d.Partitions, descriptor.WriteNode(fsys, dir, &node)
}
