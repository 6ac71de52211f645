package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
)

// reasonedRegistrar registers services whose unary calls tell why their request is not
// received. gRPC itself answers CANCELLED to a call that the server ends meanwhile, and the
// client then does not know that nothing was done.
type reasonedRegistrar struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r reasonedRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	reasoned := *desc
	reasoned.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		reasoned.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: withReason(m.Handler)}
	}
	r.ServiceRegistrar.RegisterService(&reasoned, impl)
}

func withReason(handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, receive func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		return handler(srv, ctx, func(request any) error { return callOf(ctx).receive(ctx, request, receive) }, interceptor)
	}
}

// reasonedStream is a stream whose handler tells why a message is not received. gRPC by
// itself answers without a reason to one that is too long.
type reasonedStream struct {
	grpc.ServerStream
	call *call
}

// RecvMsg implements grpc.ServerStream. The message may come long after the client was judged, so
// that is done again. A pipeline does it itself, to answer each operation.
func (s reasonedStream) RecvMsg(m any) error {
	if err := s.call.awaitMessage(s.Context()); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || s.call.pipeline.Load() != nil {
		return err
	}
	return s.call.stillMay()
}

// awaitMessage waits until the length of the next message of a long-lived stream is known,
// and refuses the message if it is too long. It leaves all other errors to gRPC.
func (c *call) awaitMessage(ctx context.Context) error {
	for {
		// The message that is too long is the last one, so its length is read first.
		tooLong, ended := c.tooLong.Load(), c.here.Load()
		switch {
		case c.announced.Load() > c.received:
			c.received++
			return nil
		case tooLong > 0:
			return messageTooLarge(tooLong, service.MessageBytes(c.api.server.Limits()))
		case ended:
			return nil
		}
		select {
		case <-c.signal:
		case <-ctx.Done():
			if why := c.rights.refusal(); why != nil {
				return why
			}
			return nil
		}
	}
}

// follow looks at bytes of the request before gRPC gets them. After a message that is too
// long nothing counts.
func (c *call) follow(b []byte) {
	for len(b) > 0 && c.tooLong.Load() == 0 {
		m := &c.message
		known := m.known()
		b = m.take(b)
		switch {
		case !known && m.known() && m.length() > int64(service.MessageBytes(c.api.server.Limits())):
			c.tooLong.Store(m.length())
		case c.unary():
			return
		case !known && m.known():
			c.announced.Add(1)
		}
		if !c.unary() && m.whole() {
			*m = message{}
		}
	}
}

// endData ends a frame of data of the request, the last one if last is set. It reports whether
// the handler should look at what has come.
func (c *call) endData(last bool) (news bool) {
	m := &c.message
	switch {
	case last || c.tooLong.Load() > 0 || c.unary() && m.whole():
		c.here.Store(true)
	case !c.unary(): // a message may have begun
	case m.known() && m.length() > longBytes(c.api.server.Options().BufferBytes) && !c.long.Load():
		c.long.Store(true)
	default:
		return false
	}
	return true
}

// receive has gRPC receive the request of a unary call once it has come, or may come, and decodes
// it. If gRPC's part fails it has sent its own status. Without an error the call is claimed.
func (c *call) receive(ctx context.Context, request any, receive func(any) error) (err error) {
	defer func() {
		if err != nil && c.claimed {
			c.release()
		}
	}()
	var come frame.Undecoded
	if err := c.await(ctx, &come, receive); err != nil {
		return err
	}
	defer come.Free()
	if err := c.accept(ctx, come.ReadOnlyData(), request.(proto.Message)); err != nil {
		return c.refuseRequest(c.api.server.Failure(c.method, err))
	}
	return nil
}

// await has gRPC receive the request, which is not decoded.
func (c *call) await(ctx context.Context, request *frame.Undecoded, receive func(any) error) error {
	for !c.here.Load() && !c.long.Load() && !c.ended.Load() {
		select {
		case <-c.signal:
		case <-ctx.Done():
			return receive(request) // it says why
		}
	}
	switch {
	case c.tooLong.Load() > 0:
		return c.refuseRequest(messageTooLarge(c.tooLong.Load(), service.MessageBytes(c.api.server.Limits())))
	case c.ended.Load():
		return c.refuseRequest(service.ShedError(service.ShedByWait))
	case c.long.Load():
		return c.receiveLong(ctx, request, receive)
	}
	return receive(request)
}

func (c *call) receiveLong(ctx context.Context, request *frame.Undecoded, receive func(any) error) error {
	if c.claimed = c.claim(); !c.claimed {
		return receive(request) // the call is over
	}
	arrival, err := c.api.intake.enter(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return receive(request) // it says why
	case err != nil:
		return c.refuseRequest(c.api.server.Failure(c.method, c.api.server.NoMemory(err)))
	}
	defer c.api.intake.received(arrival)
	// What gRPC waits for does not end with the eviction: that this call ends does.
	received := make(chan error, 1)
	go func() { received <- receive(request) }()
	for {
		select {
		case err := <-received:
			return err
		case <-c.signal:
			if c.ended.Load() {
				return c.refuseRequest(service.ShedError(service.ShedByWait))
			}
		}
	}
}

// accept decodes a request once there is memory for it and for what is made of it. The charge for
// what has come becomes one for that. Since the tap has judged the client, its token may have been
// revoked, or have expired: the body may have come much later than the headers, and memory later
// still.
func (c *call) accept(ctx context.Context, encoded []byte, request proto.Message) (err error) {
	s := c.api.server
	defer s.Recover(c.method, &err)
	if !c.claimed {
		if c.claimed = c.claim(); !c.claimed {
			return context.Cause(ctx)
		}
	}
	if err := c.come(); err != nil {
		return err
	}
	return messages.Decode(s, &c.work, encoded, request, func(bytes int64) error {
		if err := c.resize(c.method.RequestBytes(len(encoded)) + bytes); err != nil {
			return err
		}
		c.work.Held = c.charged
		c.leaveIntake()
		c.work.Begun = time.Now()
		return c.judge()
	})
}

// refuseRequest counts a call whose request is not received.
func (c *call) refuseRequest(e *service.Error) error {
	c.method.Count(e.Code, 1)
	return statusError{e}
}
