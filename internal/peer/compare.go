package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// Digest says what state a node had at a version.
type Digest struct {
	Version uint64 // of the entry that asked for it; 0: there is none yet
	Sum     uint64
}

// SetCompare sets what takes the digests of other nodes and returns the one of this node. It does
// not block.
func (n *Network) SetCompare(hear func(node uint64, theirs Digest) (mine Digest)) {
	n.hear.Store(&hear)
}

// Compare tells another node the digest of this one, and returns that of the other.
//
// Errors: kv.ErrInvalidArgument if there is no such member; what the other node says; that of ctx.
func (n *Network) Compare(ctx context.Context, node uint64, mine Digest) (theirs Digest, err error) {
	m := n.member(node)
	if m == nil {
		return Digest{}, fmt.Errorf("%w: node %d is no other member", kv.ErrInvalidArgument, node)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me := n.calls(node, noLane)
	stream, err := peerpb.NewPeerServiceClient(m.link.Load().small.conn).Compare(metadata.NewOutgoingContext(ctx, me.metadata()))
	if err != nil {
		return Digest{}, explain(err)
	}
	_ = stream.Send(&peerpb.CompareRequest{Version: mine.Version, Sum: mine.Sum}) // if it fails, Recv says why
	r, err := stream.Recv()
	if err != nil {
		return Digest{}, explain(err)
	}
	header, err := stream.Header()
	if err := errors.Join(err, checkAnswer(header, me)); err != nil {
		return Digest{}, explain(err)
	}
	return Digest{r.GetVersion(), r.GetSum()}, nil
}

// Compare implements peerpb.PeerServiceServer.
func (s *service) Compare(stream grpc.BidiStreamingServer[peerpb.CompareRequest, peerpb.CompareResponse]) error {
	hello, from, err := s.network.welcome(stream.Context(), s.network.from)
	if err != nil {
		return err
	}
	hear := s.network.hear.Load()
	if hear == nil {
		return status.Error(codes.Unavailable, "this node compares nothing")
	}
	if err := stream.SendHeader(s.network.answers(hello).metadata()); err != nil {
		return err
	}
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	mine := (*hear)(from.id, Digest{r.GetVersion(), r.GetSum()})
	return stream.Send(&peerpb.CompareResponse{Version: mine.Version, Sum: mine.Sum})
}
