package kvd

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// answer is what a Get, Put or Delete brought.
type answer struct {
	version uint64 // that the answer is valid at, or of the write
	found   bool   // by a Get, or by a write that asked for what was there
	item    Item   // that was found, without its key
}

// itemOf takes an item over from a message.
func itemOf(i *kvdpb.Item) Item {
	return Item{Value: append([]byte{}, i.GetValue()...), Version: i.GetVersion(), TTL: ttlOf(i.GetTtlMs())}
}

var errEmptyKey = fmt.Errorf("%w: a key has at least one byte", ErrInvalid)

// operate performs one operation, in a frame or, if it is large, by a call of
// its own.
func (c *Client) operate(ctx context.Context, name string, op frame.Op, t *Timings) (answer, error) {
	w := startWatch(t)
	if len(op.Key) == 0 {
		return answer{}, &Error{Op: name, Err: errEmptyKey}
	}
	if !c.calls.enter() {
		return answer{}, &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	if err := ctx.Err(); err != nil {
		return answer{}, &Error{Op: name, Err: err}
	}
	tries := c.attemptsAt(ctx, name, &op)
	tries.watch = w
	if c.travelsAlone(&op) {
		return c.operateAlone(ctx, op, tries)
	}
	for {
		a, f := c.attempt(ctx, &op, &tries)
		if f == nil {
			tries.succeeded()
			return a, nil
		}
		if err := tries.again(ctx, f); err != nil {
			return answer{}, err
		}
	}
}

// travelsAlone reports whether an operation is made by a call of its own.
func (c *Client) travelsAlone(op *frame.Op) bool {
	b := &c.config.batching
	return b.Disabled || len(op.Value)+len(op.Condition.Value) > b.MaxBytes
}

// attemptsAt returns the state of the tries of op.
func (c *Client) attemptsAt(ctx context.Context, name string, op *frame.Op) attempts {
	if op.Kind == frame.Get {
		return c.attempts(ctx, name)
	}
	a := c.writeAttempts(ctx, name)
	a.lasting = op.Condition.Kind == frame.VersionEquals
	if op.ReturnPrevious {
		a.name = noName // the server remembers the write, but not what it replaced
	}
	return a
}

// attempt has op performed once, in a frame.
func (c *Client) attempt(ctx context.Context, op *frame.Op, tries *attempts) (answer, *fault) {
	tries.sign(&op.Options)
	conn := c.pickFor(classOf(op))
	patience := c.setTimeout(op, tries)
	ctx, cancel := tries.within(ctx)
	defer cancel()
	a, begun, f := conn.do(ctx, op, patience, tries.deadline.IsZero(), tries.watch.depart())
	if f != nil {
		tries.bound(begun)
	}
	return a, f
}

// setTimeout gives an operation its timeout for the next try, and returns how long
// its caller will wait.
func (c *Client) setTimeout(op *frame.Op, tries *attempts) time.Duration {
	switch {
	case !tries.deadline.IsZero():
		left := tries.left()
		op.TimeoutMillis = c.ownMillis(left)
		return left
	case c.config.timeout == 0:
		return unbounded
	}
	return c.config.timeout
}

// ownMillis is the timeout that an operation with this time left carries itself: 0
// if that of its frame, which is the client's, will do: one that is longer, but not
// twice as long.
func (c *Client) ownMillis(left time.Duration) uint32 {
	if whole := c.config.timeout; whole/2 <= left && left <= whole {
		return 0
	}
	return timeoutMillis(left)
}

// operateAlone performs one operation by a call of its own.
func (c *Client) operateAlone(ctx context.Context, op frame.Op, tries attempts) (a answer, err error) {
	err = c.call(ctx, &tries, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		options := tries.requestOptions(op.Durability)
		var found *kvdpb.Item
		var meta *kvdpb.ResponseMeta
		switch op.Kind {
		case frame.Get:
			r, err := conn.kv.Get(ctx, &kvdpb.GetRequest{Key: op.Key, AtVersion: op.AtVersion, Epoch: op.Epoch, Options: tries.watch.options()}, opts...)
			if err != nil {
				return err
			}
			found, meta = r.GetItem(), r.GetMeta()
		case frame.Put:
			r, err := conn.kv.Put(ctx, &kvdpb.PutRequest{
				Item:           &kvdpb.Item{Key: op.Key, Value: op.Value, TtlMs: op.TTLMillis},
				Precondition:   precondition(&op.Condition),
				ReturnPrevious: op.ReturnPrevious,
				Options:        options,
			}, opts...)
			if err != nil {
				return err
			}
			found, meta = r.GetPrevious(), r.GetMeta()
		default:
			r, err := conn.kv.Delete(ctx, &kvdpb.DeleteRequest{
				Key:            op.Key,
				Precondition:   precondition(&op.Condition),
				ReturnPrevious: op.ReturnPrevious,
				Options:        options,
			}, opts...)
			if err != nil {
				return err
			}
			found, meta = r.GetPrevious(), r.GetMeta()
		}
		tries.watch.answered(meta)
		a = answer{version: meta.GetVersion(), found: op.Kind == frame.Get || found != nil}
		if a.found {
			a.item = itemOf(found)
		}
		c.names.see(max(a.version, a.item.Version))
		return nil
	})
	return a, err
}

// unary makes a call that is no write until it succeeds or must not be tried
// again.
func (c *Client) unary(ctx context.Context, name string, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	return c.unaryTimed(ctx, name, watch{}, call)
}

// unaryTimed is unary for a call that somebody may want the timings of.
func (c *Client) unaryTimed(ctx context.Context, name string, w watch, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	if !c.calls.enter() {
		return &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	tries := c.attempts(ctx, name)
	tries.watch = w
	return c.call(ctx, &tries, call)
}

// unaryWrite is unary for a write, of which it returns the version. The call gets
// the options of the try. If lasting is set, what the write asks for and does not
// find it never will.
func (c *Client) unaryWrite(ctx context.Context, name string, o *writeOptions, lasting bool,
	call func(context.Context, *conn, *kvdpb.RequestOptions, ...grpc.CallOption) (*kvdpb.ResponseMeta, error),
) (version uint64, err error) {
	w := startWatch(o.timings)
	if !c.calls.enter() {
		return 0, &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	tries := c.writeAttempts(ctx, name)
	tries.lasting = lasting
	tries.watch = w
	err = c.call(ctx, &tries, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		meta, err := call(ctx, conn, tries.requestOptions(o.durability.wire()), opts...)
		tries.watch.answered(meta)
		version = meta.GetVersion()
		return err
	})
	if err != nil {
		return 0, err
	}
	c.names.see(version)
	return version, nil
}

// call makes a call until it succeeds or must not be tried again. The client's
// gate has been entered.
func (c *Client) call(ctx context.Context, tries *attempts, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	if tries.bound(time.Now()); !tries.deadline.IsZero() {
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
		tries.watch.goes()
		err := call(ctx, conn, grpc.Peer(&server))
		conn.calls.Add(-1)
		if err == nil {
			tries.succeeded()
			return nil
		}
		f := faultOfStatus(err)
		if status.Code(err) == codes.Canceled && ctx.Err() != nil {
			f.err, f.transient = ctx.Err(), false
		}
		f.undone = f.undone || server.Addr == nil
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}
