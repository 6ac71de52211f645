package service

import (
	"context"

	"google.golang.org/grpc"
)

// reasonedRegistrar registers services whose unary calls tell why their request is not
// received. gRPC by itself answers CANCELLED to a call that the server ends meanwhile, and
// a client cannot tell that nothing was done.
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

// receive has gRPC receive the request of a unary call once it has come, or may come. If
// gRPC's part fails it has sent its own status.
func (c *call) receive(ctx context.Context, request any, receive func(any) error) error {
	for !c.here.Load() && !c.long.Load() && !c.ended.Load() {
		select {
		case <-c.signal:
		case <-ctx.Done():
			return receive(request) // it says why
		}
	}
	switch {
	case c.ended.Load():
		return c.refuseRequest(shedFailure(shedByWait))
	case c.long.Load():
		return c.receiveLong(ctx, request, receive)
	}
	return receive(request)
}

func (c *call) receiveLong(ctx context.Context, request any, receive func(any) error) (err error) {
	if !c.claim() {
		return receive(request) // the call is over
	}
	c.claimed = true
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	arrival, err := c.server.intake.enter(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return receive(request) // it says why
	case err != nil:
		return c.refuseRequest(c.server.failure(c.method, c.server.noMemory(err)))
	}
	defer c.server.intake.received(arrival)
	// What gRPC waits for does not end with the eviction: that this call ends does.
	received := make(chan error, 1)
	go func() { received <- receive(request) }()
	for {
		select {
		case err := <-received:
			return err
		case <-c.signal:
			if c.ended.Load() {
				return c.refuseRequest(shedFailure(shedByWait))
			}
		}
	}
}

// refuseRequest counts a call whose request is not received.
func (c *call) refuseRequest(f *failure) error {
	c.server.counters.request(c.method, f.code, 1)
	return f
}
