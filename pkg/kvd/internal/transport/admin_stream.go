package transport

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// adminStream is a long-lived stream of the AdminService.
type adminStream struct {
	caller context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	conn   *conn
}

// beginStream chooses a connection for a stream. The caller closes the stream.
func (c *Network) beginStream(caller context.Context, tries *attempts) adminStream {
	ctx, cancel := context.WithCancelCause(caller)
	s := adminStream{caller: caller, ctx: ctx, cancel: cancel, conn: c.pick(func(c *conn) int64 { return c.calls.Load() })}
	tries.conn = s.conn
	s.conn.calls.Add(1)
	return s
}

// bound ends the stream after a timeout, 0: none, unless stop is called before.
func (s *adminStream) bound(timeout time.Duration) (stop func() bool) {
	if timeout <= 0 {
		return func() bool { return true }
	}
	return time.AfterFunc(timeout, func() { s.cancel(context.DeadlineExceeded) }).Stop
}

func (s *adminStream) service() kvdpb.AdminServiceClient {
	return kvdpb.NewAdminServiceClient(s.conn.grpc)
}

// fault translates an error of the stream, which a timeout may have ended.
func (s *adminStream) fault(err error) *fault {
	f := faultOfStatus(err)
	if errors.Is(err, io.EOF) {
		f = &fault{err: backend.ErrUnavailable, message: "the server ended the stream"}
	}
	if s.caller.Err() != nil {
		f.err, f.transient = s.caller.Err(), false
	} else if s.ctx.Err() != nil {
		f.err, f.transient = context.DeadlineExceeded, false
	}
	return f
}

func (s *adminStream) close() {
	s.cancel(nil)
	s.conn.calls.Add(-1)
}
