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

// Forwarded is a write that a client asked of another member. Its methods are for one goroutine,
// and each is called once at most.
type Forwarded struct {
	From uint64 // the member
	Head *peerpb.ForwardHead

	read func() ([]byte, error)
	send func(*peerpb.ForwardOutcome, []byte) error
}

// Read returns the message, which has Head.Bytes.
//
// Errors: the other node sends something else, or has gone.
func (f *Forwarded) Read() ([]byte, error) { return f.read() }

// Answer sends the outcome and the answer, which it borrows. It sets outcome.Bytes.
func (f *Forwarded) Answer(outcome *peerpb.ForwardOutcome, answer []byte) error {
	return f.send(outcome, answer)
}

// ServeForwards lets other members forward writes to this node. perform performs one and answers;
// ctx has a deadline. An error says that the write was not begun.
func (n *Network) ServeForwards(perform func(ctx context.Context, f *Forwarded) error) {
	n.perform.Store(&perform)
}

// Forward has another member perform a write that a client asked of this one, and returns the
// outcome and the answer. It sets head.Bytes. ctx has a deadline, which holds there too. A member
// performs forwardsPerConn writes of this node at a time; more wait.
//
// Errors: kv.ErrInvalidArgument for a node that is no member, ErrUnreachable, and the cause of
// ctx: the node has not begun with the write, and will not; kv.ErrUncertain: it may have.
func (n *Network) Forward(ctx context.Context, node uint64, head *peerpb.ForwardHead, message []byte) (*peerpb.ForwardOutcome, []byte, error) {
	m := n.member(node)
	if m == nil {
		return nil, nil, fmt.Errorf("%w: node %d is no other member", kv.ErrInvalidArgument, node)
	}
	if len(message) > maxMessageBytes {
		return nil, nil, fmt.Errorf("%w: a message of %d bytes, limit is %d", kv.ErrTooLarge, len(message), maxMessageBytes)
	}
	head.Bytes = uint64(len(message))
	caller := ctx
	ctx, cancel := context.WithCancel(ctx) // frees the stream, whatever is left of it
	defer cancel()
	me := n.calls(node, noLane)
	sent := false
	stream, err := peerpb.NewPeerServiceClient(m.link.Load().forwards).Forward(metadata.NewOutgoingContext(ctx, me.metadata()))
	if err == nil {
		sent = sendForward(stream, head, message)
		var outcome *peerpb.ForwardOutcome
		var answer []byte
		if outcome, answer, err = receiveOutcome(stream, me); err == nil {
			return outcome, answer, nil
		}
	}
	return nil, nil, m.forwardError(caller, err, sent)
}

// sendForward sends a write. It reports whether all of it may have been sent. Why it was not says
// receiveOutcome.
func sendForward(stream grpc.BidiStreamingClient[peerpb.ForwardRequest, peerpb.ForwardResponse], head *peerpb.ForwardHead, message []byte) (sent bool) {
	next := &peerpb.ForwardRequest{Head: head}
	for {
		last := len(message) == 0
		if err := stream.Send(next); err != nil || last {
			_ = stream.CloseSend() // it says what Recv says
			return last
		}
		n := min(len(message), packetBytes)
		next, message = &peerpb.ForwardRequest{Part: message[:n]}, message[n:]
	}
}

// receiveOutcome receives the outcome and the answer.
func receiveOutcome(stream grpc.BidiStreamingClient[peerpb.ForwardRequest, peerpb.ForwardResponse], me identity) (*peerpb.ForwardOutcome, []byte, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	header, err := stream.Header()
	if err == nil {
		err = checkAnswer(header, me)
	}
	if err != nil {
		return nil, nil, err
	}
	outcome := first.GetOutcome()
	if outcome == nil {
		return nil, nil, errors.New("the outcome is missing")
	}
	answer, err := gather(outcome.GetBytes(), func() ([]byte, error) {
		r, err := stream.Recv()
		return r.GetPart(), err
	})
	return outcome, answer, err
}

// gather receives the parts of so many bytes.
func gather(bytes uint64, part func() ([]byte, error)) ([]byte, error) {
	if bytes > maxMessageBytes {
		return nil, fmt.Errorf("%w: a message of %d bytes, limit is %d", kv.ErrTooLarge, bytes, maxMessageBytes)
	}
	var all []byte
	for uint64(len(all)) < bytes {
		p, err := part()
		switch {
		case err != nil:
			return nil, err
		case len(p) == 0 || uint64(len(all)+len(p)) > bytes:
			return nil, fmt.Errorf("%w: a part of %d bytes after %d of %d", kv.ErrInvalidArgument, len(p), len(all), bytes)
		case all == nil && uint64(len(p)) == bytes:
			return p, nil
		case all == nil:
			all = make([]byte, 0, bytes)
		}
		all = append(all, p...)
	}
	return all, nil
}

// forwardError returns what an error of a forwarded write means for the client.
func (m *member) forwardError(ctx context.Context, err error, sent bool) error {
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, expelled:
		return fmt.Errorf("%w: node %d: %w", ErrUnreachable, m.id, explain(err)) // it refused the call before it began
	}
	cause := context.Cause(ctx)
	if cause == nil && status.Code(err) == codes.DeadlineExceeded { // the timer of gRPC was first
		cause = context.DeadlineExceeded
	}
	switch {
	case sent && cause != nil:
		return fmt.Errorf("%w: %w", kv.ErrUncertain, cause)
	case sent:
		return fmt.Errorf("%w: node %d at %s did not answer: %w", kv.ErrUncertain, m.id, m.link.Load().address, explain(err))
	case cause != nil:
		return cause
	}
	return fmt.Errorf("%w: node %d at %s: %w", ErrUnreachable, m.id, m.link.Load().address, explain(err))
}

// Forward implements peerpb.PeerServiceServer. What it refuses has a code by which the caller knows
// that nothing was begun.
func (s *service) Forward(stream grpc.BidiStreamingServer[peerpb.ForwardRequest, peerpb.ForwardResponse]) error {
	n := s.network
	hello, from, err := n.welcome(stream.Context(), n.from)
	if err != nil {
		return err
	}
	perform := n.perform.Load()
	if perform == nil {
		return status.Error(codes.FailedPrecondition, "this node serves no clients yet")
	}
	if _, has := stream.Context().Deadline(); !has {
		return status.Error(codes.FailedPrecondition, "a write that is forwarded has a deadline")
	}
	if err := stream.SendHeader(n.answers(hello).metadata()); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return status.Error(codes.FailedPrecondition, "the first request does not say which write it is")
	}
	f := &Forwarded{From: from.id, Head: head}
	f.read = func() ([]byte, error) {
		message, err := gather(head.GetBytes(), func() ([]byte, error) {
			r, err := stream.Recv()
			return r.GetPart(), err
		})
		if err == nil && n.member(from.id) != from {
			err = errors.New("the node was removed")
		}
		return message, err
	}
	var failed error // to send the answer: the caller has gone
	f.send = func(outcome *peerpb.ForwardOutcome, answer []byte) error {
		failed = sendOutcome(stream, outcome, answer)
		return failed
	}
	if err := (*perform)(stream.Context(), f); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return failed
}

// sendOutcome sends the outcome and the answer.
func sendOutcome(stream grpc.BidiStreamingServer[peerpb.ForwardRequest, peerpb.ForwardResponse], outcome *peerpb.ForwardOutcome, answer []byte) error {
	outcome.Bytes = uint64(len(answer))
	err := stream.Send(&peerpb.ForwardResponse{Outcome: outcome})
	for err == nil && len(answer) > 0 {
		part := answer[:min(len(answer), packetBytes)]
		answer = answer[len(part):]
		err = stream.Send(&peerpb.ForwardResponse{Part: part})
	}
	return err
}
