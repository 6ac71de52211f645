package kvd

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Scan yields the items of a range in key order, or the reverse of it, all as of
// one version, not older than anything acknowledged before the loop began, unless
// AtVersion asks for an old one. If it cannot go on it yields one error, last.
// Leaving the loop early frees everything; items may be kept.
//
// The timeout of the client bounds the wait for each chunk of items, not the
// whole scan; a deadline of ctx bounds the whole. The server keeps a scan's
// version for a limited time only: a loop that stands still for longer ends with
// an error. A scan is tried again only before its first item.
func (c *Client) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	return c.scan(ctx, r, collectScan(opts))
}

func (c *Client) scan(ctx context.Context, r Range, o scanOptions) iter.Seq2[Item, error] {
	request := &kvdpb.ScanRequest{
		Range: r.clone().wire(), Reverse: o.reverse, KeysOnly: o.keysOnly, Limit: o.limit, AtVersion: o.at, Epoch: o.epoch,
	}
	return func(yield func(Item, error) bool) {
		if !c.calls.enter() {
			yield(Item{}, &Error{Op: "scan", Err: ErrClosed})
			return
		}
		defer c.calls.leave()
		s := scan{client: c, tries: c.attempts(ctx, "scan")}
		if _, has := ctx.Deadline(); !has {
			s.tries.deadline = time.Time{} // the timeout is that of each chunk
		}
		for {
			done, f := s.run(ctx, request, yield)
			if done {
				return
			}
			err := s.tries.again(ctx, f)
			if err == nil {
				continue
			}
			yield(Item{}, err)
			return
		}
	}
}

// scan is one loop over a range.
type scan struct {
	client  *Client
	tries   attempts
	yielded bool
}

// run reads the range once. It returns true when the loop is over.
func (s *scan) run(caller context.Context, request *kvdpb.ScanRequest, yield func(Item, error) bool) (bool, *fault) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	conn := s.client.pick(func(c *conn) int64 { return c.calls.Load() })
	conn.calls.Add(1)
	defer conn.calls.Add(-1)

	var stalled *time.Timer
	if timeout := s.client.config.timeout; timeout > 0 {
		stalled = time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
		defer stalled.Stop()
	}
	stream, err := conn.kv.Scan(ctx, request)
	for err == nil {
		var chunk *kvdpb.ScanResponse
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		if stalled != nil {
			stalled.Stop() // the loop takes its time
		}
		s.client.names.see(chunk.GetMeta().GetVersion())
		for _, item := range chunk.Items {
			s.yielded = true
			if !yield(Item{Key: item.Key, Value: item.Value, Version: item.Version, TTL: ttlOf(item.TtlMs)}, nil) {
				return true, nil
			}
		}
		if stalled != nil {
			stalled.Reset(s.client.config.timeout)
		}
	}
	if errors.Is(err, io.EOF) {
		s.client.budget.earn()
		return true, nil
	}
	f := faultOfStatus(err)
	if caller.Err() != nil {
		f.err, f.transient = caller.Err(), false
	} else if ctx.Err() != nil {
		f.err, f.transient = context.DeadlineExceeded, false // a chunk took too long
	}
	f.transient = f.transient && !s.yielded
	return false, f
}
