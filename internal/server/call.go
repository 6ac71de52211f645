package server

import (
	"context"
	"strings"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// call is the context of an admitted call, and what the call is charged
// for. It is made in the tap handle, before the body of the request is read, and
// gRPC then uses it as the context of the stream: its deadline and its cancel end
// whatever the handler or the transport waits for.
//
// It is released once: by the interceptor that claimed it, or by the end of the
// context if no handler ever ran.
type call struct {
	context.Context
	server  *Server
	method  method
	charged int64
	budget  kv.ReadBudget // of what a unary call reads
	time    timings       // of a unary call
	// kill ends a long-lived stream; nil for others. Its client is told CANCELLED,
	// since gRPC sends that by itself; the cause is for the counters.
	kill context.CancelCauseFunc
	// stall kills a long-lived stream when it runs out: at first if its request
	// does not come, later as its handler sets it.
	stall *time.Timer
	// expire ends a call that came without a deadline; nil for others. Nobody calls
	// it: the answer is written after the handler returned and needs the context,
	// and the end of the stream, which ends ctx, frees the timer.
	expire context.CancelFunc
	// claim takes the release away from the end of the context. It returns false
	// if that came first.
	claim func() bool
}

type callKey struct{}

func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callOf returns the call that a context is of.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// retryAfterShed is the advice to a caller who was refused at the door. Guessed:
// long against a call, short against a deadline.
const retryAfterShed = 50 * time.Millisecond

// admit is the tap handle. It must not block.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	m := methodOf(info.FullMethodName)
	if s.counters.streams.Add(1) > int64(s.options.Streams) {
		s.counters.streams.Add(-1)
		return ctx, s.shed(m, shedByStreams)
	}
	if !s.charge(streamWindow) {
		s.counters.streams.Add(-1)
		return ctx, s.shed(m, shedByBytes)
	}
	c := &call{Context: ctx, server: s, method: m, charged: streamWindow}
	if longLived(info.FullMethodName) {
		c.Context, c.kill = context.WithCancelCause(ctx)
		c.stall = time.AfterFunc(s.options.Deadline, func() { c.kill(context.DeadlineExceeded) })
	} else if _, has := ctx.Deadline(); !has {
		c.Context, c.expire = context.WithTimeout(ctx, s.options.Deadline)
	}
	c.claim = context.AfterFunc(c.Context, c.release)
	return c, nil
}

// longLived tells the streams that may last longer than the default deadline.
func longLived(fullMethod string) bool {
	switch fullMethod {
	case kvdpb.KVService_Scan_FullMethodName, kvdpb.KVService_Pipeline_FullMethodName, healthpb.Health_Watch_FullMethodName:
		return true
	}
	return strings.HasPrefix(fullMethod, "/grpc.reflection.")
}

func (s *Server) shed(m method, reason int) *failure {
	s.counters.shed(reason)
	f := overloaded(shedNames[reason], retryAfterShed)
	s.counters.request(m, f.code, 1)
	return f
}

// charge takes bytes from the budget, unless that is exhausted.
func (s *Server) charge(bytes int64) bool { return s.memory.Take(bytes, 0) }

// resize changes the charge of a claimed call to what the request really
// occupies. It reports whether the budget allows it.
func (c *call) resize(bytes int64) bool {
	more := bytes - c.charged
	if more > 0 && !c.server.memory.Take(more, c.charged) {
		return false
	}
	if more < 0 {
		c.server.memory.Give(-more)
	}
	c.charged = bytes
	return true
}

func (c *call) release() {
	if c.stall != nil {
		c.stall.Stop()
	}
	c.server.memory.Give(c.charged)
	c.server.counters.streams.Add(-1)
}
