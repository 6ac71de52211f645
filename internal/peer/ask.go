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

// ErrExpelled says that another node knows this one as a node that must not take part: it was
// removed, or has not the data directory that it had. It stays so.
var ErrExpelled = errors.New("the node was expelled from its cluster")

// ErrUnreachable says that a node gave no answer. Whether it has done what was asked is not known.
var ErrUnreachable = errors.New("the node gives no answer")

// expelled is the code of a refusal that is ErrExpelled on the other side. Nothing else has it.
const expelled = codes.NotFound

// Answer lets other members ask this node. answer says what becomes of a question of a node; its
// error ends the call, and the caller reads its text.
func (n *Network) Answer(answer func(ctx context.Context, from uint64, q *peerpb.AskRequest) (*peerpb.AskResponse, error)) {
	n.answer.Store(&answer)
}

// Judge lets this node refuse callers for good: judge returns why a node, with the random id of
// its data directory, must not take part; nil: it may.
func (n *Network) Judge(judge func(node, store uint64) error) { n.judge.Store(&judge) }

// expels refuses a call of a node that must not take part.
func (n *Network) expels(ctx context.Context, hello identity) error {
	judge := n.judge.Load()
	if judge == nil {
		return nil
	}
	if why := (*judge)(hello.from, hello.store); why != nil {
		return n.refuse(ctx, expelled, why)
	}
	return nil
}

// Ask asks another member.
//
// Errors: kv.ErrInvalidArgument for a node that is no member; ErrUnreachable; that of ctx.
func (n *Network) Ask(ctx context.Context, node uint64, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
	m := n.member(node)
	if m == nil {
		return nil, fmt.Errorf("%w: node %d is no member of the group, as far as this node knows", kv.ErrInvalidArgument, node)
	}
	l, me := m.link.Load(), n.calls(node, noLane)
	stream, err := peerpb.NewPeerServiceClient(l.small.conn).Ask(metadata.NewOutgoingContext(ctx, me.metadata()))
	if err == nil {
		_ = stream.Send(q) // why it fails says CloseAndRecv
		var answer *peerpb.AskResponse
		if answer, err = stream.CloseAndRecv(); err == nil {
			header, _ := stream.Header()
			if err = checkAnswer(header, me); err == nil {
				return answer, nil
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: node %d at %s: %w", ErrUnreachable, node, l.address, explain(err))
}

// Ask implements peerpb.PeerServiceServer.
func (s *service) Ask(stream grpc.ClientStreamingServer[peerpb.AskRequest, peerpb.AskResponse]) error {
	n := s.network
	hello, from, err := n.welcome(stream.Context(), n.from)
	if err != nil {
		return err
	}
	answer := n.answer.Load()
	if answer == nil {
		return status.Error(codes.Unavailable, "this node answers no questions yet")
	}
	q, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := stream.SendHeader(n.answers(hello).metadata()); err != nil {
		return err
	}
	a, err := (*answer)(stream.Context(), from.id, q)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return stream.SendAndClose(a)
}
