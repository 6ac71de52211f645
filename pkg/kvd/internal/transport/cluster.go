package transport

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Cluster implements backend.Backend.
func (c *Network) Cluster(ctx context.Context) (backend.Cluster, error) {
	var r *kvdpb.GetClusterResponse
	err := c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).GetCluster(ctx, &kvdpb.GetClusterRequest{}, opts...)
		return err
	})
	cluster := backend.Cluster{ID: r.GetCluster(), Incarnation: r.GetIncarnation(), Node: r.GetNode(), Leader: r.GetLeader(), Term: r.GetTerm(), Committed: r.GetCommitted()}
	for _, n := range r.GetNodes() {
		cluster.Nodes = append(cluster.Nodes, backend.ClusterNode{
			ID: n.Node, Client: n.ClientAddress, Peer: n.PeerAddress, Voter: n.Voter, Answers: n.Answers, Version: n.Version,
			Applied: n.Applied, Lag: n.Lag, Silent: time.Duration(n.SilentMs) * time.Millisecond, Streams: n.Streams,
			NeedsCheckpoint: n.NeedsCheckpoint, Started: n.Started, Replaces: n.Replaces,
		})
	}
	return cluster, err
}

// change makes a gRPC call that changes the cluster. It is attempted again also if an attempt may have
// made the change, since a repeated one does no harm, and is in doubt like a write until it is answered.
func (c *Network) change(ctx context.Context, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	tries := c.writeAttempts(ctx)
	tries.forwards = false // any node asks the one that leads, and waits until one does
	return c.call(ctx, &tries, call)
}

// TransferLeadership implements backend.Backend.
func (c *Network) TransferLeadership(ctx context.Context, to uint64) (leader uint64, err error) {
	var r *kvdpb.TransferLeadershipResponse
	err = c.change(ctx, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).TransferLeadership(ctx, &kvdpb.TransferLeadershipRequest{To: to}, opts...)
		return err
	})
	return r.GetLeader(), err
}

// AddNode implements backend.Backend. An attempt whose answer was lost has added a node that never
// starts; the next one takes its place.
func (c *Network) AddNode(ctx context.Context, peer string, replaces uint64) (backend.AddedNode, error) {
	var r *kvdpb.AddNodeResponse
	err := c.change(ctx, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).AddNode(ctx, &kvdpb.AddNodeRequest{PeerAddress: peer, Replaces: replaces}, opts...)
		return err
	})
	return backend.AddedNode{
		Cluster: r.GetCluster(), Incarnation: r.GetIncarnation(), ID: r.GetNode(), Partitions: int(r.GetPartitions()), Members: r.GetMembers(), First: r.GetFirstVoters(),
	}, err
}

// RemoveNode implements backend.Backend.
func (c *Network) RemoveNode(ctx context.Context, node uint64) error {
	return c.change(ctx, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		_, err := kvdpb.NewAdminServiceClient(conn.grpc).RemoveNode(ctx, &kvdpb.RemoveNodeRequest{Node: node}, opts...)
		return err
	})
}

// MoveNode implements backend.Backend.
func (c *Network) MoveNode(ctx context.Context, node uint64, peer string) error {
	return c.change(ctx, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		_, err := kvdpb.NewAdminServiceClient(conn.grpc).MoveNode(ctx, &kvdpb.MoveNodeRequest{Node: node, PeerAddress: peer}, opts...)
		return err
	})
}
