package server

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
		c := callOf(ctx)
		if c.evicted == nil {
			return handler(srv, ctx, receive, interceptor)
		}
		return handler(srv, ctx, func(request any) error {
			// A receive that fails has sent its own status. So the eviction does not end
			// it: that this call ends does.
			received := make(chan error, 1)
			go func() { received <- receive(request) }()
			select {
			case err := <-received:
				return err
			case <-c.evicted:
				f := overloaded(shedNames[shedByWait], retryAfterShed)
				c.server.counters.request(c.method, f.code, 1)
				return f
			}
		}, interceptor)
	}
}
