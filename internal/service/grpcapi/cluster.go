package grpcapi

import (
	"context"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// GetCluster implements the method of AdminService.
func (a *api) GetCluster(ctx context.Context, _ *kvdpb.GetClusterRequest) (*kvdpb.GetClusterResponse, error) {
	cluster, err := a.server.Cluster()
	if err != nil {
		return nil, err
	}
	s, err := cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	r := &kvdpb.GetClusterResponse{Cluster: s.Cluster, Incarnation: s.Incarnation.String(), Node: s.Node, Leader: s.Leader, Term: s.Term, Committed: s.Committed}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		silent := int64(-1)
		if n.Silent >= 0 {
			silent = n.Silent.Milliseconds()
		}
		r.Nodes = append(r.Nodes, &kvdpb.ClusterNode{
			Node: n.ID, ClientAddress: n.Client, PeerAddress: n.Peer, Voter: n.Voter, Answers: n.Answers, Version: n.Version,
			Applied: n.Applied, Lag: n.Lag, SilentMs: silent, Streams: n.Streams, NeedsCheckpoint: n.NeedsCheckpoint,
			Started: n.Started, Replaces: n.Replaces,
		})
	}
	return r, nil
}

// TransferLeadership implements the method of AdminService.
func (a *api) TransferLeadership(ctx context.Context, req *kvdpb.TransferLeadershipRequest) (*kvdpb.TransferLeadershipResponse, error) {
	cluster, err := a.server.Cluster()
	if err != nil {
		return nil, err
	}
	leader, err := cluster.Transfer(ctx, req.To)
	if err != nil {
		return nil, err
	}
	return &kvdpb.TransferLeadershipResponse{Leader: leader}, nil
}

// AddNode implements the method of AdminService.
func (a *api) AddNode(ctx context.Context, req *kvdpb.AddNodeRequest) (*kvdpb.AddNodeResponse, error) {
	cluster, err := a.server.Cluster()
	if err != nil {
		return nil, err
	}
	n, err := cluster.Add(ctx, req.PeerAddress, req.Replaces)
	if err != nil {
		return nil, err
	}
	return &kvdpb.AddNodeResponse{Cluster: n.Cluster, Incarnation: n.Incarnation.String(), Node: n.ID, Partitions: uint32(n.Partitions), Members: n.Members, FirstVoters: n.First}, nil
}

// RemoveNode implements the method of AdminService.
func (a *api) RemoveNode(ctx context.Context, req *kvdpb.RemoveNodeRequest) (*kvdpb.RemoveNodeResponse, error) {
	cluster, err := a.server.Cluster()
	if err != nil {
		return nil, err
	}
	if err := cluster.Remove(ctx, req.Node); err != nil {
		return nil, err
	}
	return new(kvdpb.RemoveNodeResponse), nil
}

// MoveNode implements the method of AdminService.
func (a *api) MoveNode(ctx context.Context, req *kvdpb.MoveNodeRequest) (*kvdpb.MoveNodeResponse, error) {
	cluster, err := a.server.Cluster()
	if err != nil {
		return nil, err
	}
	if err := cluster.Move(ctx, req.Node, req.PeerAddress); err != nil {
		return nil, err
	}
	return new(kvdpb.MoveNodeResponse), nil
}
