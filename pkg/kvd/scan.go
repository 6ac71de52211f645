package kvd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"time"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Range is the set of keys k with Start <= k < End. An empty End means that the
// range has no upper bound.
type Range struct{ Start, End []byte }

// All is the range of all keys.
func All() Range { return Range{} }

// Between is the range of the keys k with start <= k < end. It keeps the slices.
func Between(start, end []byte) Range { return Range{Start: start, End: end} }

// Prefix is the range of the keys that begin with p. It keeps no part of p.
func Prefix(p []byte) Range {
	r := Range{Start: bytes.Clone(p)}
	// The end is the smallest key above all that have the prefix: the prefix with
	// its last byte below 0xff raised by one and cut behind it.
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			r.End = bytes.Clone(p[:i+1])
			r.End[i]++
			break
		}
	}
	return r
}

// Scan yields the items of a range in key order, all as of one version, not
// older than anything acknowledged before the loop began. If it cannot go on it
// yields one error, last. Leaving the loop early frees everything; items may be
// kept.
//
// The timeout of the client bounds the wait for each chunk of items, not the
// whole scan; a deadline of ctx bounds the whole. The server keeps a scan's
// version for a limited time only: a loop that stands still for longer ends with
// an error. A scan is tried again only before its first item.
func (c *Client) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	request := &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}}
	for _, o := range opts {
		o(request)
	}
	return func(yield func(Item, error) bool) {
		if !c.calls.enter() {
			yield(Item{}, &Error{Op: "scan", Err: ErrClosed})
			return
		}
		defer c.calls.leave()
		s := scan{client: c, tries: c.attempts(ctx, "scan", false)}
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
		for _, item := range chunk.Items {
			s.yielded = true
			if !yield(Item{Key: item.Key, Value: item.Value, Version: item.Version}, nil) {
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
		f.err = caller.Err()
	} else if ctx.Err() != nil {
		f.err = context.DeadlineExceeded // a chunk took too long
	}
	f.transient = f.transient && !s.yielded
	return false, f
}
