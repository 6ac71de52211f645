package transport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// answer is the result of a Get, Put or Delete.
type answer = backend.Answer

// valueOf copies the value of an item from a message.
func valueOf(i *kvdpb.Item) backend.Value {
	return backend.Value{Bytes: append([]byte{}, i.GetValue()...), Version: i.GetVersion(), TTL: ttlOf(i.GetTtlMs())}
}

// frameOp returns an operation as it is in a frame.
func frameOp(op *backend.Op) frame.Op {
	f := frame.Op{
		Kind: frame.Put, Key: op.Key, Value: op.Value, TTLMillis: ttlMillis(op.TTL),
		Condition:      frameCondition(op.Condition),
		ReturnPrevious: op.ReturnPrevious, AtVersion: op.At.Version, Epoch: op.At.Epoch,
	}
	f.Durability = kvdpb.Durability(op.Durability)
	switch op.Kind {
	case backend.Get:
		f.Kind = frame.Get
	case backend.Delete:
		f.Kind = frame.Delete
	}
	return f
}

// Get implements backend.Backend.
func (c *Network) Get(ctx context.Context, key []byte, at backend.ReadVersion, t *backend.Timings) (backend.Value, error) {
	a, err := c.Operate(ctx, backend.Op{Mutation: backend.Mutation{Kind: backend.Get, Key: key}, At: at}, t)
	return a.Value, err
}

// Operate implements backend.Backend; it also performs a Get. The operation is sent in a frame or, if
// it is large, as a gRPC call.
func (c *Network) Operate(ctx context.Context, operation backend.Op, t *backend.Timings) (answer, error) {
	ct := startTimer(t)
	op := frameOp(&operation)
	tries := c.attemptsAt(ctx, &op)
	tries.timer = ct
	if c.travelsAlone(&op) || operation.At.Loose() {
		return c.operateAlone(ctx, &operation, tries)
	}
	for {
		a, f := c.attempt(ctx, &op, &tries)
		if f == nil {
			tries.succeeded()
			return a, nil
		}
		if f.reason == kvdpb.ReasonNotLeader && tries.write {
			// In a frame a node does not say whether it knows which one leads, and forwards nothing.
			// The next one, or the only one, is asked by a call.
			f.elsewhere, tries.asCall = true, true
		}
		if err := tries.again(ctx, f); err != nil {
			return answer{}, err
		}
		if tries.asCall {
			return c.operateAlone(ctx, &operation, tries)
		}
	}
}

// travelsAlone reports whether an operation is a gRPC call. A frame that is larger than the server
// takes would end the connection for the operations of all callers.
func (c *Network) travelsAlone(op *frame.Op) bool {
	return c.options.Unframed || max(len(op.Key), len(op.Value)+len(op.Condition.Value)) > c.options.Frames.Bytes
}

// attemptsAt returns the state of the attempts at op.
func (c *Network) attemptsAt(ctx context.Context, op *frame.Op) attempts {
	if op.Kind == frame.Get {
		return c.attempts(ctx)
	}
	a := c.writeAttempts(ctx)
	a.lasting = op.Condition.Kind == frame.VersionEquals
	if op.ReturnPrevious {
		a.requestID = noRequestID // the server remembers the write, but not what it replaced
	}
	return a
}

// attempt attempts op once, in a frame.
func (c *Network) attempt(ctx context.Context, op *frame.Op, tries *attempts) (answer, *fault) {
	tries.sign(&op.Options)
	conn := c.pickFor(batchKeyOf(op))
	tries.conn = conn
	wait := c.setTimeout(op, tries)
	ctx, cancel := tries.within(ctx)
	defer cancel()
	a, via, begun, f := conn.do(ctx, op, wait, tries.deadline.IsZero(), tries.timer.beginAttempt())
	tries.via = via
	if f != nil {
		tries.bound(begun)
		tries.unanswered(f, begun)
	}
	return a, f
}

// setTimeout sets the timeout of an operation for the next attempt, and returns how long its caller
// will wait.
func (c *Network) setTimeout(op *frame.Op, tries *attempts) time.Duration {
	switch {
	case !tries.deadline.IsZero():
		left := tries.left()
		op.TimeoutMillis = c.ownMillis(left)
		return left
	case c.options.Timeout == 0:
		return unbounded
	}
	return c.options.Timeout
}

// ownMillis returns the timeout of an operation with this time left, or 0 if the timeout of its
// frame will do: that is the client's, which may be longer but less than twice as long.
func (c *Network) ownMillis(left time.Duration) uint32 {
	if whole := c.options.Timeout; whole/2 <= left && left <= whole {
		return 0
	}
	return timeoutMillis(left)
}

// operateAlone performs an operation as a gRPC call.
func (c *Network) operateAlone(ctx context.Context, op *backend.Op, tries attempts) (a answer, err error) {
	err = c.call(ctx, &tries, c.alone(op, &tries, &a))
	return a, err
}

// alone returns the gRPC call of an operation, which fills in its answer.
func (c *Network) alone(op *backend.Op, tries *attempts, a *answer) func(context.Context, *conn, ...grpc.CallOption) error {
	return func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		options := tries.requestOptions(kvdpb.Durability(op.Durability))
		var found *kvdpb.Item
		var meta *kvdpb.ResponseMeta
		switch op.Kind {
		case backend.Get:
			r, err := conn.kv.Get(ctx, &kvdpb.GetRequest{Key: op.Key, AtVersion: op.At.Version, Epoch: op.At.Epoch, Options: tries.timer.readOptions(op.At)}, opts...)
			if err != nil {
				return err
			}
			found, meta = r.GetItem(), r.GetMeta()
		case backend.Put:
			r, err := conn.kv.Put(ctx, &kvdpb.PutRequest{
				Item:           &kvdpb.Item{Key: op.Key, Value: op.Value, TtlMs: ttlMillis(op.TTL)},
				Precondition:   precondition(op.Condition),
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
				Precondition:   precondition(op.Condition),
				ReturnPrevious: op.ReturnPrevious,
				Options:        options,
			}, opts...)
			if err != nil {
				return err
			}
			found, meta = r.GetPrevious(), r.GetMeta()
		}
		tries.timer.answered(meta)
		*a = answer{Version: meta.GetVersion(), Found: op.Kind == backend.Get || found != nil}
		if a.Found {
			a.Value = valueOf(found)
		}
		c.requestIDs.observe(max(a.Version, a.Value.Version))
		return nil
	}
}

// unary makes a gRPC call that is no write, with retries.
func (c *Network) unary(ctx context.Context, ct callTimer, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	tries := c.attempts(ctx)
	tries.timer = ct
	return c.call(ctx, &tries, call)
}

// call attempts a gRPC call until it succeeds or must not be tried again.
func (c *Network) call(ctx context.Context, tries *attempts, call func(context.Context, *conn, ...grpc.CallOption) error) error {
	for {
		f := c.tryUnary(ctx, tries, call)
		if f == nil {
			tries.succeeded()
			return nil
		}
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}

// tryUnary attempts a gRPC call once.
func (c *Network) tryUnary(ctx context.Context, tries *attempts, call func(context.Context, *conn, ...grpc.CallOption) error) *fault {
	begun := time.Now()
	tries.bound(begun)
	ctx, cancel := tries.within(ctx)
	defer cancel()
	conn := c.pick(func(c *conn) int64 { return c.calls.Load() })
	tries.conn, tries.via, tries.asCall, tries.forward = conn, nil, true, tries.forward || c.endpoints == 1
	ctx, silence := conn.listen(ctx)
	defer silence.end()
	conn.calls.Add(1)
	// gRPC fills in the peer when the call has a stream. Without a peer nothing was sent.
	var server peer.Peer
	tries.timer.beginSent()
	err := call(tries.following(ctx), conn, grpc.Peer(&server))
	conn.calls.Add(-1)
	if err == nil {
		return nil
	}
	f := faultOfStatus(err)
	switch cancelled := status.Code(err) == codes.Canceled && ctx.Err() != nil; {
	case cancelled && silence.ended():
		f = faultOfStatus(errSilent)
	case cancelled:
		f.err, f.transient = ctx.Err(), false
	}
	f.undone = f.undone || server.Addr == nil
	tries.unanswered(f, begun)
	return f
}
