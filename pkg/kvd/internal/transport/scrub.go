package transport

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Scrub implements backend.Backend. The timeout of the client bounds the wait for the first
// response. A scrub that has begun is not tried again.
func (c *Network) Scrub(ctx context.Context, rate int64, told func(backend.ScrubStep)) error {
	tries := c.attempts(ctx)
	for {
		s, f := c.openScrub(ctx, uint64(max(rate, 0)), &tries)
		if f == nil {
			defer s.close()
			return s.receive(told)
		}
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}

// scrubStream is a scrub of a server.
type scrubStream struct {
	adminStream
	stream grpc.ServerStreamingClient[kvdpb.ScrubResponse]
}

func (c *Network) openScrub(caller context.Context, rate uint64, tries *attempts) (*scrubStream, *fault) {
	s := &scrubStream{adminStream: c.beginStream(caller, tries)}
	defer s.bound(c.options.Timeout)()
	var err error
	if s.stream, err = s.service().Scrub(s.ctx, &kvdpb.ScrubRequest{BytesPerSecond: rate}); err == nil {
		_, err = s.stream.Recv()
	}
	if err != nil {
		defer s.close()
		return nil, s.fault(err)
	}
	return s, nil
}

// receive calls told for each response after the first.
func (s *scrubStream) receive(told func(backend.ScrubStep)) error {
	for {
		r, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return s.fault(err).error(false, 1)
		}
		step := backend.ScrubStep{Files: int(r.Files), Done: int64(r.DoneBytes), Total: int64(r.TotalBytes)}
		if d := r.Damage; d != nil {
			step.Damage = &backend.Damage{File: d.File, Kind: d.Kind, Offset: d.Offset, Reason: d.Reason, First: d.FirstKey, Last: d.LastKey}
		}
		told(step)
	}
}
