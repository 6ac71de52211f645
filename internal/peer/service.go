package peer

import (
	"errors"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// service is what other nodes call.
type service struct {
	peerpb.UnimplementedPeerServiceServer
	network *Network
}

// Messages implements peerpb.PeerServiceServer.
func (s *service) Messages(stream grpc.ClientStreamingServer[peerpb.Packet, peerpb.MessagesResponse]) error {
	n := s.network
	hello, from, err := n.welcome(stream.Context(), n.meet)
	if err != nil {
		return err
	}
	var replaced <-chan struct{}
	defer func() { n.left(from, hello.lane, replaced) }()
	if err := stream.Context().Err(); err != nil { // its caller gave up, and may have made a newer call
		return status.FromContextError(err).Err()
	}
	if replaced, err = from.replace(hello.lane); err != nil {
		return err
	}
	for _, l := range from.lanes() {
		l.wake()
	}
	if err := stream.SendHeader(n.answers(hello).metadata()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	n.running.Go(func() { ended <- n.receive(stream, from) }) // it ends at the latest after this call does
	select {
	case err := <-ended:
		return err
	case <-replaced:
		return status.Error(codes.Aborted, "the node was removed, or has made a newer stream; if this repeats, a second process has its id, as on a copy of its data directory")
	case <-n.ctx.Done():
		return status.Error(codes.Unavailable, "the node is about to end")
	}
}

// replace ends the older stream of a lane. It returns what is closed when a newer one comes.
func (m *member) replace(kind peerpb.Lane) (<-chan struct{}, error) {
	if kind != peerpb.Lane_LANE_SMALL && kind != peerpb.Lane_LANE_APPENDS {
		return nil, status.Errorf(codes.FailedPrecondition, "there is no lane %d", kind)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inbound == nil {
		return nil, status.Error(codes.PermissionDenied, "the node was removed")
	}
	if older := m.inbound[kind]; older != nil {
		close(older)
	}
	m.inbound[kind] = make(chan struct{})
	return m.inbound[kind], nil
}

// receive delivers the messages of a stream.
func (n *Network) receive(stream grpc.ClientStreamingServer[peerpb.Packet, peerpb.MessagesResponse], from *member) error {
	r := receiver{
		group: n.options.Group, from: from.id, to: n.options.Node,
		forwards: func(id uint64) bool { return n.member(id) != nil || n.isNew(id) },
	}
	to := *n.receiver.Load()
	deliver := func(m *pb.Message) {
		from.received.Add(1)
		if !to.Deliver(m) {
			from.unwanted.Add(1)
		}
	}
	for {
		p, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&peerpb.MessagesResponse{})
		case err != nil:
			return err
		}
		if n.member(from.id) != from {
			return status.Error(codes.PermissionDenied, "the node was removed")
		}
		if err := r.take(p, deliver); err != nil {
			return n.refuse(stream.Context(), codes.InvalidArgument, err)
		}
	}
}
