package transport

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Scan implements backend.Backend.
func (c *Network) Scan(ctx context.Context, o *backend.Scan, yield func(backend.Item) bool) error {
	request := &kvdpb.ScanRequest{
		Range: wireRange(o.Range), Reverse: o.Reverse, KeysOnly: o.KeysOnly, Limit: o.Limit,
		AtVersion: o.At.Version, Epoch: o.At.Epoch, Options: new(callTimer).readOptions(o.At),
	}
	s := scan{client: c, tries: c.attempts(ctx)}
	if _, has := ctx.Deadline(); !has {
		s.tries.deadline = time.Time{} // the timeout bounds each chunk
	}
	for {
		done, f := s.run(ctx, request, yield)
		if done {
			return nil
		}
		if err := s.tries.again(ctx, f); err != nil {
			return err
		}
	}
}

// scan is one loop over a range.
type scan struct {
	client  *Network
	tries   attempts
	yielded bool
}

// run attempts to read the range. It returns true when the loop has ended.
func (s *scan) run(caller context.Context, request *kvdpb.ScanRequest, yield func(backend.Item) bool) (bool, *fault) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	conn := s.client.pick(func(c *conn) int64 { return c.calls.Load() })
	s.tries.conn = conn
	conn.calls.Add(1)
	defer conn.calls.Add(-1)

	ctx, silence := conn.listen(ctx)
	defer silence.end()
	var stalled *time.Timer
	if timeout := s.client.options.Timeout; timeout > 0 {
		stalled = time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
		defer stalled.Stop()
	}
	waits := time.Now()
	stream, err := conn.kv.Scan(ctx, request)
	for err == nil {
		var chunk *kvdpb.ScanResponse
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		silence.came()
		if stalled != nil {
			stalled.Stop() // the body of the loop is not bounded
		}
		s.client.requestIDs.observe(chunk.GetMeta().GetVersion())
		for _, item := range chunk.Items {
			s.yielded = true
			if item.Value == nil && !request.KeysOnly {
				item.Value = []byte{} // an empty value is not sent
			}
			if !yield(backend.Item{Key: item.Key, Value: item.Value, Version: item.Version, TTL: ttlOf(item.TtlMs)}) {
				return true, nil
			}
		}
		waits = time.Now()
		silence.resume()
		if stalled != nil {
			stalled.Reset(s.client.options.Timeout)
		}
	}
	if errors.Is(err, io.EOF) {
		s.client.budget.earn()
		return true, nil
	}
	f := faultOfStatus(err)
	switch {
	case caller.Err() != nil:
		f.err, f.transient = caller.Err(), false
	case silence.ended():
		f = faultOfStatus(errSilent)
	case ctx.Err() != nil:
		f.err, f.transient = context.DeadlineExceeded, false // a chunk took too long
	}
	s.tries.unanswered(f, waits)
	f.transient = f.transient && !s.yielded
	return false, f
}
