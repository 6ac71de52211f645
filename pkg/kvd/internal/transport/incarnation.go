package transport

import (
	"context"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// The servers of a cluster tell its incarnation: in the greeting of a connection for frames, and in the
// metadata of each answer by gRPC. The client keeps the first one that it is told, and sends it with
// each later gRPC call, which a server of another incarnation refuses. It sends no frame on a
// connection to such a server.

// otherIncarnation is the error of a server of another incarnation of its cluster than the client knows.
type otherIncarnation struct{ known, told string }

func (e *otherIncarnation) Error() string {
	return fmt.Sprintf("the server is of incarnation %s of its cluster, and this client knows %s: the cluster was recovered from a lost majority since, so that acknowledged writes may be missing, "+
		"or this node was recovered apart from the others. Compare the incarnations that kvd cluster status shows at each node, keep one cluster, and start the client again", e.told, e.known)
}

// GRPCStatus makes it an error as a server returns it.
func (e *otherIncarnation) GRPCStatus() *status.Status {
	s := status.New(codes.FailedPrecondition, e.Error())
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: kvdpb.ReasonClusterRecovered, Domain: kvdpb.ErrorDomain}); err == nil {
		s = detailed
	}
	return s
}

// meet notes what a server tells, or compares it with what the first one has told. A server that tells
// nothing belongs to no cluster, or is older.
func (c *Network) meet(told string) error {
	if told == "" {
		return nil
	}
	if c.incarnation.CompareAndSwap(nil, &told) {
		return nil
	}
	if known := *c.incarnation.Load(); known != told {
		return &otherIncarnation{known, told}
	}
	return nil
}

// meetIn is meet for the metadata of an answer.
func (c *Network) meetIn(header metadata.MD) error {
	for _, told := range header.Get(kvdpb.IncarnationHeader) {
		if err := c.meet(told); err != nil {
			return err
		}
	}
	return nil
}

// says returns the context of a gRPC call that tells what the client knows.
func (c *Network) says(ctx context.Context) context.Context {
	if known := c.incarnation.Load(); known != nil {
		return metadata.AppendToOutgoingContext(ctx, kvdpb.IncarnationHeader, *known)
	}
	return ctx
}

// meetsInCall is the interceptor of unary calls.
func (c *Network) meetsInCall(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header metadata.MD
	err := invoke(c.says(ctx), method, request, reply, cc, append(opts, grpc.Header(&header))...)
	why := c.meetIn(header)
	if err != nil {
		return err // also if the server has refused the call for its incarnation
	}
	return why
}

// meetsInStream is the interceptor of streams.
func (c *Network) meetsInStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(c.says(ctx), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &meetingStream{ClientStream: stream, client: c}, nil
}

// meetingStream looks at the metadata when the first message comes.
type meetingStream struct {
	grpc.ClientStream
	client *Network
	met    bool // of the goroutine that receives
}

func (s *meetingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.met || err != nil {
		return err
	}
	s.met = true
	header, err := s.Header() // it has come before the message
	if err != nil {
		return err
	}
	return s.client.meetIn(header)
}
