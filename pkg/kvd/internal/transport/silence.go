package transport

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// serves asks the endpoint over gRPC whether it serves requests. A process that is stopped does not
// answer within silenceOfSeveral; a node of a cluster that the others do not reach answers that it is
// not ready, which counts as no if ready is set.
func (c *conn) serves(ctx context.Context, ready bool) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceOfSeveral)
	defer cancel()
	answer, err := healthpb.NewHealthClient(c.grpc).Check(ctx, &healthpb.HealthCheckRequest{Service: kvdpb.HealthReadiness})
	switch status.Code(err) {
	case codes.OK:
		return !ready || answer.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING
	case codes.DeadlineExceeded:
		return false
	case codes.Unavailable:
		return faultOfStatus(err).reason == kvdpb.ReasonReadOnly // it has answered, and serves reads
	}
	return true // it refuses the question
}

// listener ends an attempt by gRPC, with errSilent, if its endpoint, which is one of several, is silent
// and does not serve requests. The watchdog does that for frames. The zero listener does nothing.
type listener struct {
	conn   *conn
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc
	timer  *time.Timer
	heard  atomic.Uint64 // how often something has come
}

// listen begins to listen for the answer of an attempt, and returns the context for it.
func (c *conn) listen(ctx context.Context) (context.Context, *listener) {
	l := &listener{}
	if c.client.endpoints > 1 {
		l.conn = c
		l.ctx, l.cancel = context.WithCancelCause(ctx)
		l.timer = time.AfterFunc(silenceOfSeveral, l.ask)
		ctx = l.ctx
	}
	return ctx, l
}

// ask is called after silenceOfSeveral without an answer. Once something has come, the endpoint need
// not be ready for new requests.
func (l *listener) ask() {
	heard := l.heard.Load()
	for l.conn.serves(l.ctx, heard == 0) {
		if backend.Pause(l.ctx, silenceOfSeveral) != nil || l.heard.Load() != heard {
			return
		}
	}
	if l.heard.Load() == heard {
		l.cancel(errSilent)
	}
}

// came is called when something has come, and resume when more is to come.
func (l *listener) came() {
	if l.conn != nil {
		l.heard.Add(1)
		l.timer.Stop()
	}
}

func (l *listener) resume() {
	if l.conn != nil {
		l.timer.Reset(silenceOfSeveral)
	}
}

// end is called when the attempt has ended.
func (l *listener) end() {
	if l.conn != nil {
		l.timer.Stop()
		l.cancel(nil)
	}
}

// ended reports whether the listener has ended the attempt.
func (l *listener) ended() bool { return l.conn != nil && context.Cause(l.ctx) == errSilent }
