package client

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echoMethod is a unary call that returns its argument: the lower bound for any service
// over gRPC.
const echoMethod = "/kvd.bench.Echo/Echo"

// ServeEcho answers calls until the listener is closed.
func ServeEcho(l net.Listener) error {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "kvd.bench.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Echo",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				m := new(wrapperspb.BytesValue)
				return m, decode(m)
			},
		}},
	}, struct{}{})
	return s.Serve(l)
}

type echoClient struct{ c *grpc.ClientConn }

func openEcho(o Options) (Client, error) {
	c, err := grpc.NewClient(o.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return echoClient{c}, nil
}

func (e echoClient) Get(context.Context, []byte) ([]byte, error) { return nil, errNothingStored }

// Set sends the value there and back.
func (e echoClient) Set(ctx context.Context, _, value []byte) error {
	return e.c.Invoke(ctx, echoMethod, wrapperspb.Bytes(value), new(wrapperspb.BytesValue))
}

func (e echoClient) Close() error { return e.c.Close() }
