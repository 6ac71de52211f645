package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/trace"
)

// Cluster is what an operator may ask of a node of a cluster. The texts of its errors go to the
// client. Its methods may be called concurrently.
type Cluster interface {
	// Status describes the nodes.
	Status(ctx context.Context) (ClusterStatus, error)
	// Transfer lets another node lead, 0 for the one that lacks least, and returns which one does.
	Transfer(ctx context.Context, to uint64) (leader uint64, err error)
	// Add adds a node at an address for the other nodes. replaces is 0 or the node that is
	// removed when the new one votes.
	Add(ctx context.Context, peer string, replaces uint64) (NewNode, error)
	// Remove takes a node out of the cluster; one that is not in it any more is no error.
	Remove(ctx context.Context, node uint64) error
	// Move changes the address of a node for the other nodes; one that it has is no error.
	Move(ctx context.Context, node uint64, peer string) error
}

// Forwarder reaches the node that leads the cluster. Safe for concurrent use.
type Forwarder interface {
	// Forward has that node perform a write of a client. ctx has a deadline.
	//
	// Errors: ErrLeads, a kv.NotLeaderError, and the cause of ctx: nothing was done;
	// kv.ErrUncertain: it may have been done.
	Forward(ctx context.Context, w *ForwardedWrite) (*ForwardedAnswer, error)
}

// ErrLeads says that this node itself leads by now, and is to perform a write that it refused before.
var ErrLeads = fmt.Errorf("%w, but since then: try again", kv.ErrNotLeader)

// ForwardedWrite is a write of a client that another node is to perform.
type ForwardedWrite struct {
	Method   string         // its full name
	Message  []byte         // its request, encoded
	Identity *auth.Identity // of the client; nil: this server knows none
	Epoch    uint64         // of the store of this server
}

// ForwardedAnswer is what has come of it.
type ForwardedAnswer struct {
	Err     *Error // why it failed; nil: it succeeded
	Message []byte // its answer, encoded
	Stages  trace.Stages
}

// ClusterStatus describes a cluster as one of its nodes sees it.
type ClusterStatus struct {
	Cluster     uint64
	Incarnation kv.Incarnation
	Node        uint64 // that describes it
	Leader      uint64 // 0: none is known
	Term        uint64
	Committed   uint64        // index
	Nodes       []ClusterNode // in the order of their ids
}

// ClusterNode describes a node of a cluster.
type ClusterNode struct {
	ID              uint64
	Client, Peer    string        // addresses; Client is empty if the node has not told it
	Voter           bool          // otherwise it is a learner
	Answers         bool          // now
	Version         string        // of its program, if it answers
	Applied, Lag    uint64        // index, and how many entries it lacks
	Silent          time.Duration // that the leader has heard nothing of it; negative: not known
	Streams         string        // what is wrong with the streams to it; empty: nothing
	NeedsCheckpoint bool          // it lacks entries that the leader has given up
	Started         bool          // since it was added
	Replaces        uint64        // 0: no node
}

// NewNode is what a node that was added starts with.
type NewNode struct {
	Cluster, ID uint64
	Incarnation kv.Incarnation
	Partitions  int
	Members     map[uint64]string // addresses of all nodes for each other
	First       []uint64          // the voters with which the cluster began
}

// Cluster returns the cluster that the server belongs to.
//
// Errors: if it belongs to none.
func (s *Server) Cluster() (Cluster, error) {
	if s.options.Cluster == nil {
		return nil, Invalidf("this server is a single node, and no member of a cluster")
	}
	return shown{s.options.Cluster}, nil
}

// Incarnation returns what clients are told of the incarnation of the cluster; empty: the server belongs
// to none.
func (s *Server) Incarnation() string {
	if s.options.Incarnation == nil {
		return ""
	}
	return s.options.Incarnation().String()
}

// CheckIncarnation refuses a client that knows another incarnation of the cluster; empty: it knows none.
func (s *Server) CheckIncarnation(known string) error {
	if own := s.Incarnation(); known != "" && own != "" && known != own {
		return &Error{
			Code: FailedPrecondition, Reason: reason.ClusterRecovered,
			Message: fmt.Sprintf("this server is of incarnation %s of its cluster, and the client knows %.64q: the cluster was recovered from a lost majority since, so that acknowledged writes may be missing, "+
				"or this node was recovered apart from the others; nothing was done. Compare the incarnations that kvd cluster status shows at each node, keep one cluster, and start the client again", own, known),
		}
	}
	return nil
}

// shown is a Cluster with errors whose texts go to the client.
type shown struct{ Cluster }

func (c shown) Status(ctx context.Context) (ClusterStatus, error) {
	status, err := c.Cluster.Status(ctx)
	return status, show(err)
}

func (c shown) Transfer(ctx context.Context, to uint64) (uint64, error) {
	leader, err := c.Cluster.Transfer(ctx, to)
	return leader, show(err)
}

func (c shown) Add(ctx context.Context, peer string, replaces uint64) (NewNode, error) {
	node, err := c.Cluster.Add(ctx, peer, replaces)
	return node, show(err)
}

func (c shown) Remove(ctx context.Context, node uint64) error {
	return show(c.Cluster.Remove(ctx, node))
}

func (c shown) Move(ctx context.Context, node uint64, peer string) error {
	return show(c.Cluster.Move(ctx, node, peer))
}

// show returns an error whose text the client sees, if it is of one of the kinds that concern
// the cluster.
func show(err error) error {
	class, known := reason.Classify(err)
	switch {
	case errors.Is(err, kv.ErrInvalidArgument):
		return Invalid(err)
	case known && (class.Reason == reason.NotLeader || class.Reason == reason.OutcomeUnknown):
		return &Error{Code: codes[class.Reason], Reason: class.Reason, Message: err.Error()}
	case known && class.Reason == reason.Overloaded:
		return &Error{Code: codes[class.Reason], Reason: class.Reason, Message: err.Error(), RetryAfter: busyFor}
	}
	return err
}

// busyFor is when a client asks again that a leader has refused as it makes another change.
const busyFor = 200 * time.Millisecond
