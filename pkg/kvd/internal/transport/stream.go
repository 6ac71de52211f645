package transport

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// streamTransport sends frames as messages of a Pipeline stream.
type streamTransport struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
}

var pipelineStream = &grpc.StreamDesc{StreamName: "Pipeline", ClientStreams: true, ServerStreams: true}

// dial makes a transport: a connection for raw frames or, if the server does not take them, a stream
// of gRPC.
func (c *conn) dial(ctx context.Context) (frameTransport, error) {
	if c.raw.dial != nil && c.asksForRaw() {
		transport, err := c.tryRaw(ctx)
		if err == nil || !answeredOtherwise(err) {
			return transport, err
		}
	}
	return c.dialStream(ctx)
}

func (c *conn) dialStream(ctx context.Context) (frameTransport, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.grpc.NewStream(ctx, pipelineStream, kvdpb.KVService_Pipeline_FullMethodName, grpc.ForceCodecV2(frame.Codec()))
	if err != nil {
		cancel()
		return nil, err
	}
	return &streamTransport{stream, cancel}, nil
}

func (c *streamTransport) takesCalls() bool { return false }

// send: after an error of SendMsg, gRPC has sent nothing of the message.
func (c *streamTransport) send(b *frame.Builder, h frame.Header) (left bool, err error) {
	err = c.stream.SendMsg(b.Message(h))
	return err == nil, err
}

func (c *streamTransport) receive(r *frame.Response) error {
	if err := c.stream.RecvMsg(r); err != nil {
		return err
	}
	if !r.Compact && len(r.Results) > 0 {
		return status.Error(codes.Internal, "the server answered a frame in another format")
	}
	return nil
}

// finish ignores an error, which means that the server has ended the stream.
func (c *streamTransport) finish() { _ = c.stream.CloseSend() }

func (c *streamTransport) close() { c.cancel() }
