package grpcapi

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Pipeline implements the method of KVService.
func (a *api) Pipeline(stream grpc.BidiStreamingServer[kvdpb.PipelineRequest, kvdpb.PipelineResponse]) error {
	c := callOf(stream.Context())
	c.stall.Stop() // it may idle
	p := a.streams.NewPipeline(stream.Context(), c.conn.Conn, c.work.Session, &streamTransport{
		stream: stream, call: c, longest: a.server.Options().Deadline,
	})
	c.pipeline.Store(p)
	if err := p.Run(); err != nil {
		return a.server.Failure(c.method, err)
	}
	return nil
}

// streamTransport is a Pipeline stream of gRPC. Its frames are messages of
// operations or with a compact frame. It implements frameapi.Transport.
type streamTransport struct {
	stream grpc.ServerStream
	call   *call

	// sending serializes responses. The call's stall timer runs during each, for longest.
	sending sync.Mutex
	longest time.Duration
}

// Receive implements frameapi.Transport.
func (c *streamTransport) Receive() (*frame.Request, error) {
	f := frameapi.NewRequest()
	err := c.stream.RecvMsg(f)
	if err == nil {
		if f.Malformed != nil {
			err = frameapi.Malformed(f.Malformed)
		}
	}
	if err != nil {
		frameapi.Free(f)
		return nil, err
	}
	f.Held = int64(f.Bytes())
	c.call.api.server.Memory().Add(f.Held)
	c.call.took(messagePrefix + f.Bytes())
	return f, nil
}

// Send implements frameapi.Transport.
func (c *streamTransport) Send(r *frame.Response, t *frameapi.ReceiveToken) {
	t.Pass()
	c.sending.Lock()
	defer c.sending.Unlock()
	if r.Lender != nil {
		r.Lender = c.call.api.lend(c.call.conn, r.Lent)
	}
	c.call.stall.Reset(c.longest)
	_ = c.stream.SendMsg(r)
	c.call.stall.Stop()
}

// Kill implements frameapi.Transport.
func (c *streamTransport) Kill(why error) { c.call.kill(why) }
