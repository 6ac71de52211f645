package grpcapi

import (
	"cmp"
	"context"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// scrubEvery is the interval of progress in a scrub.
const scrubEvery = 200 * time.Millisecond

// Scrub implements the method of AdminService. The scrub lasts as long as the stream, and as
// long as its client is an administrator. A client that takes nothing for as long as a deadline
// is cut off.
func (a *api) Scrub(req *kvdpb.ScrubRequest, stream grpc.ServerStreamingServer[kvdpb.ScrubResponse]) (err error) {
	call := callOf(stream.Context())
	call.busy.Store(true)
	call.took(math.MaxInt) // the request is here
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer call.watchRights(ctx, a.server.RecheckAdmin)()
	s := scrubStream{call: call, stream: stream, cancel: cancel}
	if err = s.send(&kvdpb.ScrubResponse{}); err == nil {
		err = a.server.Scrub(ctx, int64(min(req.BytesPerSecond, math.MaxInt64)), s.told)
	}
	return a.errorOf(call.method, cmp.Or(context.Cause(ctx), err))
}

// scrubStream sends the steps of one scrub.
type scrubStream struct {
	call   *call
	stream grpc.ServerStreamingServer[kvdpb.ScrubResponse]
	cancel context.CancelCauseFunc
	sent   time.Time
}

// told sends damage and the end of the scrub at once, and other steps now and then.
func (s *scrubStream) told(step service.ScrubStep) {
	if step.Damage == nil && step.Done < step.Total && time.Since(s.sent) < scrubEvery {
		return
	}
	r := &kvdpb.ScrubResponse{Files: uint32(step.Files), DoneBytes: uint64(step.Done), TotalBytes: uint64(step.Total)}
	if d := step.Damage; d != nil {
		r.Damage = &kvdpb.Damage{File: d.File, Kind: d.Kind, Offset: d.Offset, Reason: d.Reason, FirstKey: d.First, LastKey: d.Last}
	}
	if err := s.send(r); err != nil {
		s.cancel(err)
	}
}

// send sends a response, within a deadline, if the client is still an administrator.
func (s *scrubStream) send(r *kvdpb.ScrubResponse) error {
	if err := s.call.stillMay(); err != nil {
		return err
	}
	err := s.call.awaitClient(func() error { return s.stream.Send(r) })
	s.sent = time.Now()
	return err
}
