package kvd

import (
	"context"
	"time"
)

// Cluster describes a cluster as one of its nodes sees it.
type Cluster struct {
	ID uint64 // random id of the cluster
	// Incarnation tells apart what became of a cluster after it lost a majority of its nodes: 0, or how
	// often it was recovered and a random id of the last recovery. See ErrRecovered.
	Incarnation string
	Node        uint64 // that describes it
	Leader      uint64 // the node that leads; 0: none is known
	Term        uint64
	Committed   uint64 // index of the newest entry of the log that is known to be committed
	Nodes       []ClusterNode
}

// ClusterNode describes a node of a cluster.
type ClusterNode struct {
	ID     uint64
	Client string // address for clients; empty: the node has not told it yet
	Peer   string // address for the other nodes
	// Voter says that it votes. Otherwise it is a learner: it gets all data, and becomes a
	// voter when it has caught up.
	Voter   bool
	Answers bool   // it has answered now
	Version string // of its program, if it answers
	// Applied is the index of the log up to which its store is, or up to which the leader knows
	// that it has the log, if it does not answer. Lag is how many entries it lacks.
	Applied, Lag uint64
	// Silent is how long the leader has heard nothing of it; negative: not known.
	Silent time.Duration
	// Streams says what is wrong with the connections between it and the leader; empty: nothing.
	Streams string
	// NeedsCheckpoint says that it lacks entries that the leader has given up, so that it waits
	// for a copy of the store.
	NeedsCheckpoint bool
	Started         bool   // since it was added
	Replaces        uint64 // the node that is removed when this one votes; 0: none
}

// Cluster describes the nodes of the cluster that the server belongs to. Any node answers, also
// while no node leads. It needs the rights of an administrator, as the other calls about the
// cluster do. They return ErrInvalid if the server is no node of a cluster.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	const name = "cluster"
	in, err := c.enter(ctx, name)
	if err != nil {
		return Cluster{}, err
	}
	defer in.leave()
	b, err := c.backend.Cluster(ctx)
	cluster := Cluster{ID: b.ID, Incarnation: b.Incarnation, Node: b.Node, Leader: b.Leader, Term: b.Term, Committed: b.Committed}
	for i := range b.Nodes {
		cluster.Nodes = append(cluster.Nodes, ClusterNode(b.Nodes[i]))
	}
	return cluster, failed(name, err)
}

// TransferLeadership lets another node of the cluster lead, 0 for the voter that lacks least, and
// returns which one does. As of the other changes of a cluster, ErrUncertain says that it may have
// been made; it can be repeated.
func (c *Client) TransferLeadership(ctx context.Context, to uint64) (leader uint64, err error) {
	const name = "transfer leadership"
	in, err := c.enter(ctx, name)
	if err != nil {
		return 0, err
	}
	defer in.leave()
	leader, err = c.backend.TransferLeadership(ctx, to)
	return leader, failed(name, err)
}

// AddedNode is what a node that was added to a cluster starts with.
type AddedNode struct {
	Cluster, ID uint64
	Incarnation string            // as in Cluster
	Partitions  int               // of the store
	Members     map[uint64]string // addresses of all nodes for each other, by id
	First       []uint64          // the voters with which the cluster began
}

// AddNode adds a node to the cluster, with an address for the other nodes, as a learner. It is
// then to be started with what AddNode returns, as kvd cluster join does, and becomes a voter by
// itself when it has caught up. If replaces is not 0, that node is removed at the same moment.
func (c *Client) AddNode(ctx context.Context, peer string, replaces uint64) (AddedNode, error) {
	const name = "add node"
	in, err := c.enter(ctx, name)
	if err != nil {
		return AddedNode{}, err
	}
	defer in.leave()
	added, err := c.backend.AddNode(ctx, peer, replaces)
	return AddedNode(added), failed(name, err)
}

// RemoveNode takes a node out of the cluster for ever: its id is not used again, and it ends if it
// runs. A node that is not in the cluster any more is no error.
func (c *Client) RemoveNode(ctx context.Context, node uint64) error {
	const name = "remove node"
	in, err := c.enter(ctx, name)
	if err != nil {
		return err
	}
	defer in.leave()
	return failed(name, c.backend.RemoveNode(ctx, node))
}

// MoveNode changes the address at which the other nodes reach a node, whether it runs or not. From
// then on they connect to it there, so it is to listen there. A node that has the address already is
// no error. It is refused with ErrInvalid if another node has the address, and with ErrOverloaded
// while too few of the other voters answer for the cluster to go on without the node.
func (c *Client) MoveNode(ctx context.Context, node uint64, peer string) error {
	const name = "move node"
	in, err := c.enter(ctx, name)
	if err != nil {
		return err
	}
	defer in.leave()
	return failed(name, c.backend.MoveNode(ctx, node, peer))
}
