package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// unary surrounds the handler of every unary call, whose request was received: its count, its
// panic, and what becomes of its error.
func (a *api) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	c := callOf(ctx)
	defer func() { err = a.ended(c, err) }()
	defer c.release()
	defer a.server.Recover(c.method, &err)
	if err := a.meet(ctx, func(told metadata.MD) error { return grpc.SetHeader(ctx, told) }); err != nil {
		return nil, err
	}
	c.work.Budget.Charge(a.server.Memory())
	settled := false
	defer func() {
		if !settled { // a panic; lend gives back, or lends, what the budget has
			c.work.Budget.Return()
		}
	}()
	answer, err := handler(ctx, req)
	if err != nil {
		answer, err = a.forwarded(ctx, c, info.FullMethod, req, err, handler)
	}
	err = a.errorOf(c.method, err)
	a.finishCall(c, req, answer, err)
	settled = true
	return c.lend(answer, err)
}

// meet tells a client the incarnation of the cluster, if the server belongs to one, and refuses a client
// that knows another one.
func (a *api) meet(ctx context.Context, tell func(metadata.MD) error) error {
	own := a.server.Incarnation()
	if own == "" {
		return nil
	}
	if err := tell(metadata.Pairs(kvdpb.IncarnationHeader, own)); err != nil {
		return err
	}
	for _, known := range metadata.ValueFromIncomingContext(ctx, kvdpb.IncarnationHeader) {
		if err := a.server.CheckIncarnation(known); err != nil {
			return err
		}
	}
	return nil
}

// ended counts a call and returns its error as gRPC sends it. A stream that has failed after its
// client had lost the right to it has failed for that.
func (a *api) ended(c *call, err error) error {
	if why := c.rights.refusal(); why != nil && err != nil {
		err = why
	}
	err = a.errorOf(c.method, err)
	c.method.Count(codeOf(err), 1)
	return err
}

// finishCall is called when a unary call has its answer, and says in that where the
// time went, if the request asked. A call that did not come as far as the store is
// none.
func (a *api) finishCall(c *call, req, answer any, err error) {
	if c.work.Store() == 0 {
		return
	}
	asked, ok := req.(interface{ GetOptions() *kvdpb.RequestOptions })
	if ok && err == nil && asked.GetOptions().GetWantTimings() {
		times := c.work.Times(time.Since(c.work.Begun))
		answer.(interface{ GetMeta() *kvdpb.ResponseMeta }).GetMeta().Timings = messages.TimingsOf(&times)
	}
	a.server.Finish(c.conn.Conn, c.method, codeOf(err), &c.work, func() service.Load { return messages.LoadOf(req) })
}

// lend returns an answer for which the transport gives back the memory that its call
// has taken: for values, and of what a long request has for its answer, which may be as long.
func (c *call) lend(answer any, err error) (any, error) {
	c.work.Budget.Trim()
	m, ok := answer.(proto.Message)
	if c.work.Identity.Usage() != nil {
		size := 0
		if ok && err == nil {
			size = proto.Size(m)
		}
		c.api.server.Settle(&c.work, size)
	}
	held := c.work.Budget.Held()
	if ok && err == nil && c.charged > freeBytes {
		more := min(max(int64(proto.Size(m))-held, 0), c.charged)
		c.charged -= more
		held += more
	}
	if err != nil || !ok || held == 0 {
		c.work.Budget.Return()
		return answer, err
	}
	return &frame.Lent{Message: m, Lender: c.api.lendUnary(c.conn, held), Bytes: held}, nil
}

// stream surrounds every stream likewise.
func (a *api) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	c := callOf(ctx)
	defer func() { err = a.ended(c, err) }()
	if !c.claim() {
		return context.Cause(ctx)
	}
	defer c.release()
	defer a.server.Recover(c.method, &err)
	if err := a.meet(ctx, stream.SetHeader); err != nil {
		return err
	}
	if info.FullMethod != kvdpb.KVService_Pipeline_FullMethodName { // whose operations count
		if err := a.server.Charge(c.work.Identity, time.Now(), 1, 0); err != nil {
			return err
		}
	}
	stream = reasonedStream{stream, c}
	if c.method == a.methodOther && c.kill != nil {
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
	case <-c.api.server.Draining().Done():
		c.kill(service.ShuttingDown)
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
