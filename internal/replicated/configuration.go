package replicated

import (
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// Configuration is who belongs to a cluster, as of an entry of the log: the same on all nodes. It
// is immutable.
type Configuration struct {
	// Index is that of the entry, or of a later one without another change between them.
	Index uint64
	Conf  *pb.ConfState // voters and learners
	// Nodes has what the log knows of each of them, by id.
	Nodes map[uint64]Node
	// Next is the id of the next node that joins: all below were used.
	Next uint64
	// First are the voters with which the cluster began.
	First []uint64
	// Incarnation is that of the cluster: a recovery changes it.
	Incarnation kv.Incarnation
}

// Node is what the log knows of a node.
type Node struct {
	Peer   string // address for the other nodes
	Client string // address for clients; empty: it is not known
	// Store is the random id of the data directory; 0: the node has not told it.
	Store uint64
	// Replaces is the node that is removed when this one becomes a voter; 0: none.
	Replaces uint64
}

// The format of a configuration where a store keeps it: one byte, the version, and then a
// kvd.peer.v1.Configuration. Version 1 had no such byte: it is a ConfState of the library alone,
// whose first byte is 8 or above. Version 3 has an incarnation, and is that of a cluster which was
// recovered.
const (
	configurationVersion  = 2
	recoveredVersion      = 3
	firstByteOfAConfState = 8
	infoVersion           = 1 // of what is told with a change: likewise, and a NodeRecord
	recoveredInfoVersion  = 2 // with the changes of a recovery: likewise, and the incarnation as text
)

// encode returns the configuration as stores keep it.
func (c *Configuration) encode() ([]byte, error) {
	state, err := proto.Marshal(c.Conf)
	if err != nil {
		return nil, err
	}
	m := &peerpb.Configuration{State: state, Next: c.Next, FirstVoters: c.First}
	for _, id := range slices.Sorted(maps.Keys(c.Nodes)) {
		m.Nodes = append(m.Nodes, recordOf(id, c.Nodes[id]))
	}
	version := byte(configurationVersion)
	if c.Incarnation != (kv.Incarnation{}) {
		version, m.Incarnation = recoveredVersion, c.Incarnation.String()
	}
	b, err := proto.Marshal(m)
	return append([]byte{version}, b...), err
}

// decodeConfiguration is the inverse of encode. Of one of version 1 the addresses are those that
// the node has been told.
//
// Errors: kv.ErrUnsupportedVersion; kv.ErrCorrupt.
func decodeConfiguration(b []byte, told map[uint64]string) (*Configuration, error) {
	bad := func(err error) (*Configuration, error) {
		return nil, fmt.Errorf("%w: configuration of the cluster: %w", kv.ErrCorrupt, err)
	}
	conf, m := &pb.ConfState{}, &peerpb.Configuration{}
	switch {
	case len(b) > 0 && b[0] >= firstByteOfAConfState:
		if err := proto.Unmarshal(b, conf); err != nil {
			return bad(err)
		}
		return firstConfiguration(conf, told), nil
	case len(b) == 0 || b[0] != configurationVersion && b[0] != recoveredVersion:
		return nil, fmt.Errorf("%w: configuration of the cluster: % x; this kvd knows versions up to %d: use a newer kvd", kv.ErrUnsupportedVersion, b[:min(1, len(b))], recoveredVersion)
	}
	if err := proto.Unmarshal(b[1:], m); err != nil {
		return bad(err)
	}
	if err := proto.Unmarshal(m.GetState(), conf); err != nil {
		return bad(err)
	}
	incarnation, err := kv.ParseIncarnation(m.GetIncarnation())
	if err != nil || (incarnation != kv.Incarnation{}) != (b[0] == recoveredVersion) {
		return bad(fmt.Errorf("incarnation %q in version %d", m.GetIncarnation(), b[0]))
	}
	c := &Configuration{Conf: conf, Nodes: map[uint64]Node{}, Next: m.GetNext(), First: m.GetFirstVoters(), Incarnation: incarnation}
	for _, r := range m.GetNodes() {
		c.Nodes[r.GetNode()] = nodeOf(r)
	}
	return c, nil
}

// firstConfiguration returns the configuration at the beginning of a history, or of a version
// that had no addresses.
func firstConfiguration(conf *pb.ConfState, told map[uint64]string) *Configuration {
	c := &Configuration{Conf: conf, Nodes: map[uint64]Node{}, First: conf.GetVoters()}
	for _, id := range ids(conf) {
		c.Nodes[id] = Node{Peer: told[id]}
		c.Next = max(c.Next, id+1)
	}
	return c
}

// after returns the configuration after a change, with what was told of a node.
//
// Errors: kv.ErrUnsupportedVersion if a newer kvd told it; kv.ErrCorrupt.
func (c *Configuration) after(conf *pb.ConfState, info string) (*Configuration, error) {
	next := &Configuration{Conf: conf, Nodes: map[uint64]Node{}, Next: c.Next, First: c.First, Incarnation: c.Incarnation}
	recovered, err := decodeRecovered(info)
	if err != nil {
		return nil, err
	}
	if recovered != (kv.Incarnation{}) {
		next.Incarnation, info = recovered, ""
	}
	told, node, err := decodeInfo(info)
	if err != nil {
		return nil, err
	}
	for _, id := range ids(conf) {
		n := c.Nodes[id]
		if id == told {
			n = node
		}
		if slices.Contains(conf.GetVoters(), id) && len(conf.GetVotersOutgoing()) == 0 {
			n.Replaces = 0
		}
		next.Nodes[id] = n
		next.Next = max(next.Next, id+1)
	}
	return next, nil
}

// Addresses returns where the nodes are, for each other. Nodes that the log does not know yet, and
// that this node was told of, are among them: one of them may be the leader that sends the
// entry which adds it.
func (c *Configuration) Addresses(told map[uint64]string) map[uint64]string {
	all := map[uint64]string{}
	for id, address := range told {
		if id >= c.Next {
			all[id] = address
		}
	}
	for id, n := range c.Nodes {
		if n.Peer != "" {
			all[id] = n.Peer
		}
	}
	return all
}

// ids returns all nodes of a configuration, also those that leave with a change under way.
func ids(conf *pb.ConfState) []uint64 {
	all := slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext())
	slices.Sort(all)
	return slices.Compact(all)
}

// Voter reports whether a node votes.
func (c *Configuration) Voter(id uint64) bool { return slices.Contains(c.Conf.GetVoters(), id) }

// removed reports whether a node was in the cluster and is not any more.
func (c *Configuration) removed(id uint64) bool {
	_, member := c.Nodes[id]
	return !member && id < c.Next
}

// encodeInfo returns what a change tells of a node.
func encodeInfo(id uint64, n Node) (string, error) {
	b, err := proto.Marshal(recordOf(id, n))
	return string(append([]byte{infoVersion}, b...)), err
}

// decodeInfo is the inverse of encodeInfo. Of a change that tells nothing the id is 0.
func decodeInfo(info string) (id uint64, n Node, err error) {
	switch {
	case info == "":
		return 0, Node{}, nil
	case info[0] != infoVersion:
		return 0, Node{}, fmt.Errorf("%w %d of a change of the cluster; this kvd knows %d: use a newer kvd", kv.ErrUnsupportedVersion, info[0], infoVersion)
	}
	r := &peerpb.NodeRecord{}
	if err := proto.Unmarshal([]byte(info[1:]), r); err != nil {
		return 0, Node{}, fmt.Errorf("%w: change of the cluster: %w", kv.ErrCorrupt, err)
	}
	return r.GetNode(), nodeOf(r), nil
}

// encodeRecovered returns what the changes of a recovery tell.
func encodeRecovered(i kv.Incarnation) string {
	return string([]byte{recoveredInfoVersion}) + i.String()
}

// decodeRecovered is the inverse of encodeRecovered. Of any other change the incarnation is zero.
func decodeRecovered(info string) (kv.Incarnation, error) {
	if info == "" || info[0] != recoveredInfoVersion {
		return kv.Incarnation{}, nil
	}
	i, err := kv.ParseIncarnation(info[1:])
	if err != nil || i == (kv.Incarnation{}) {
		return i, fmt.Errorf("%w: recovery of the cluster: incarnation %q", kv.ErrCorrupt, info[1:])
	}
	return i, nil
}

func recordOf(id uint64, n Node) *peerpb.NodeRecord {
	return &peerpb.NodeRecord{Node: id, Peer: n.Peer, Client: n.Client, Store: n.Store, Replaces: n.Replaces}
}

func nodeOf(r *peerpb.NodeRecord) Node {
	return Node{Peer: r.GetPeer(), Client: r.GetClient(), Store: r.GetStore(), Replaces: r.GetReplaces()}
}
