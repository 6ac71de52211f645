package service

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Pipeline implements the method of KVService.
func (s *Server) Pipeline(stream grpc.BidiStreamingServer[kvdpb.PipelineRequest, kvdpb.PipelineResponse]) error {
	c := callOf(stream.Context())
	c.stall.Stop() // it may idle
	p := &pipeline{
		carriage: &streamCarriage{stream: stream, call: c, patience: s.options.Deadline},
		server:   s, ctx: stream.Context(), age: s.lifetimes.streamAge,
	}
	c.pipeline.Store(p)
	if err := p.run(); err != nil {
		return s.failure(methodPipeline, err)
	}
	return nil
}

// streamCarriage is a Pipeline stream of gRPC. Its frames are messages of
// operations or with a compact frame.
type streamCarriage struct {
	stream grpc.ServerStream
	call   *call

	// sending serializes responses. The call's stall timer runs during each,
	// for patience.
	sending  sync.Mutex
	patience time.Duration
}

func (c *streamCarriage) receive() (*frame.Request, error) {
	f := requests.Get().(*frame.Request)
	err := c.stream.RecvMsg(f)
	if err == nil {
		if f.Malformed != nil {
			err = malformed(f.Malformed)
		}
	}
	if err != nil {
		giveBack(f)
		return nil, err
	}
	c.call.took(messagePrefix + f.Bytes())
	return f, nil
}

func (c *streamCarriage) send(r *frame.Response, t *turn) {
	t.pass()
	c.sending.Lock()
	defer c.sending.Unlock()
	if r.Lender != nil {
		r.Lender = c.call.server.lend(c.call.conn, r.Lent)
	}
	c.call.stall.Reset(c.patience)
	_ = c.stream.SendMsg(r)
	c.call.stall.Stop()
}

func (c *streamCarriage) kill(why error) { c.call.kill(why) }
