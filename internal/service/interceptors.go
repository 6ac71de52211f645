package service

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// unary surrounds every unary call: its charge, its count and its panic.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	c := callOf(ctx)
	defer func() { s.counters.request(c.method, codeOf(err), 1) }()
	if !c.claimed && !c.claim() {
		return nil, s.failure(c.method, context.Cause(ctx))
	}
	defer c.release()
	defer s.recover(c.method, &err)
	m, ok := req.(proto.Message)
	if err := c.come(); err != nil {
		return nil, err
	}
	if ok {
		if err := c.resize(requestBytes(c.method, proto.Size(m))); err != nil {
			return nil, s.failure(c.method, err)
		}
	}
	c.leaveIntake()
	c.time.begun = time.Now()
	c.budget.Charge(s.memory)
	answer, err := handler(ctx, req)
	s.finishCall(c, req, answer, err)
	return c.lend(answer, err)
}

// lend returns an answer for which the transport gives back the memory that its call
// has taken.
func (c *call) lend(answer any, err error) (any, error) {
	c.budget.Trim()
	m, ok := answer.(proto.Message)
	held := c.budget.Held()
	if err != nil || !ok || held == 0 {
		c.budget.Return()
		return answer, err
	}
	return &frame.Lent{Message: m, Lender: c.server.lendUnary(c.conn, held), Bytes: held}, nil
}

// stream surrounds every stream likewise.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	c := callOf(ctx)
	defer func() { s.counters.request(c.method, codeOf(err), 1) }()
	if !c.claim() {
		return s.failure(c.method, context.Cause(ctx))
	}
	defer c.release()
	defer s.recover(c.method, &err)
	stream = reasonedStream{stream, c}
	if c.method == methodOther && c.kill != nil {
		ended := make(chan struct{})
		defer close(ended)
		go c.killAtShutdown(ended)
		return handler(srv, idleStream{stream, c})
	}
	return handler(srv, stream)
}

// killAtShutdown ends a stream that never ends by itself: a health watch, or
// reflection.
func (c *call) killAtShutdown(ended <-chan struct{}) {
	select {
	case <-c.server.draining.Done():
		c.kill(shuttingDown)
	case <-ended:
	}
}

// idleStream is such a stream. Once its request has come it may idle.
type idleStream struct {
	grpc.ServerStream
	c *call
}

func (s idleStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.c.stall.Stop()
	}
	return err
}

// recover turns a panic of the caller's goroutine into an error. To be deferred.
func (s *Server) recover(m method, err *error) {
	if v := recover(); v != nil {
		*err = s.panicked(m, v)
	}
}

// panicked counts and reports a panic: one request fails, the process lives.
func (s *Server) panicked(m method, v any) *failure {
	s.counters.panics.Add(1)
	return s.hidden(m, fmt.Errorf("panic: %v\n%s", v, debug.Stack()), codes.Internal, kvdpb.ReasonInternal,
		"internal error; the server's log has the request id")
}
