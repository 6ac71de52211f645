package kvd

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// answer is what a Get, Put or Delete brought.
type answer struct {
	value   []byte // of a Get
	version uint64 // of the item read, or of the write
}

var errEmptyKey = fmt.Errorf("%w: a key has at least one byte", ErrInvalid)

// operate performs one operation, in a frame or, if it is large, by a call of
// its own.
func (c *Client) operate(ctx context.Context, name string, op frame.Op) (answer, error) {
	if len(op.Key) == 0 {
		return answer{}, &Error{Op: name, Err: errEmptyKey}
	}
	if c.config.batching.Disabled || len(op.Value) > c.config.batching.MaxBytes {
		return c.operateAlone(ctx, name, op)
	}
	if !c.calls.enter() {
		return answer{}, &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	if err := ctx.Err(); err != nil {
		return answer{}, &Error{Op: name, Err: err}
	}
	tries := c.attempts(ctx, name, op.Kind != frame.Get)
	for {
		a, f := c.attempt(ctx, op, tries.left())
		if f == nil {
			c.budget.earn()
			return a, nil
		}
		if err := tries.again(ctx, f); err != nil {
			return answer{}, err
		}
	}
}

// attempt has op performed once in a frame, within the time left; 0 is no bound.
func (c *Client) attempt(ctx context.Context, op frame.Op, left time.Duration) (answer, *fault) {
	op.TimeoutMillis = timeoutMillis(left)
	var l *lane
	if op.Kind == frame.Get {
		l = c.pick(func(c *conn) int64 { return c.reads.load.Load() }).reads
	} else {
		l = c.pick(func(c *conn) int64 { return c.writes.load.Load() }).writes
	}
	one := calls.Get().(*call)
	one.op = op
	reusable := l.do(ctx, one, left)
	a, f := answer{one.value, one.version}, one.fault
	if reusable {
		one.op, one.value, one.version, one.fault = frame.Op{}, nil, 0, nil
		calls.Put(one)
	}
	return a, f
}

// operateAlone performs one operation by a call of its own.
func (c *Client) operateAlone(ctx context.Context, name string, op frame.Op) (a answer, err error) {
	options := &kvdpb.RequestOptions{Durability: op.Durability}
	err = c.unary(ctx, name, op.Kind != frame.Get, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		switch op.Kind {
		case frame.Get:
			r, err := conn.kv.Get(ctx, &kvdpb.GetRequest{Key: op.Key}, opts...)
			if err == nil {
				a = answer{append([]byte{}, r.GetItem().GetValue()...), r.GetItem().GetVersion()}
			}
			return err
		case frame.Put:
			item := &kvdpb.Item{Key: op.Key, Value: op.Value}
			r, err := conn.kv.Put(ctx, &kvdpb.PutRequest{Item: item, Options: options}, opts...)
			a.version = r.GetMeta().GetVersion()
			return err
		default:
			r, err := conn.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: op.Key, Options: options}, opts...)
			a.version = r.GetMeta().GetVersion()
			return err
		}
	})
	return a, err
}

// unary makes a call until it succeeds or must not be tried again.
func (c *Client) unary(ctx context.Context, name string, write bool, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	if !c.calls.enter() {
		return &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	tries := c.attempts(ctx, name, write)
	if !tries.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, tries.deadline)
		defer cancel()
	}
	for {
		conn := c.pick(func(c *conn) int64 { return c.calls.Load() })
		conn.calls.Add(1)
		// gRPC fills in the peer as soon as the call has a stream: without one,
		// nothing was sent.
		var server peer.Peer
		err := call(ctx, conn, grpc.Peer(&server))
		conn.calls.Add(-1)
		if err == nil {
			c.budget.earn()
			return nil
		}
		f := faultOfStatus(err)
		f.undone = f.undone || server.Addr == nil
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}
