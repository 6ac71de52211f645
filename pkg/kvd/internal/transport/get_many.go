package transport

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// GetMany implements backend.Backend. The keys are sent in a frame of their own if they fit.
func (c *Network) GetMany(ctx context.Context, keys [][]byte, at backend.ReadVersion, t *backend.Timings, found func(int, backend.Value, bool)) error {
	if !c.fitFrame(keys) || at.Loose() {
		return c.batchGet(ctx, keys, at, t, found)
	}
	tries := c.attempts(ctx)
	tries.timer = startTimer(t)
	for {
		f, tooMuch := c.tryTogether(ctx, keys, at, &tries, found)
		if tooMuch {
			ctx, cancel := tries.within(ctx)
			defer cancel()
			return c.batchGet(ctx, keys, at, t, found)
		}
		if f == nil {
			tries.succeeded()
			return nil
		}
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}

// batchGet is GetMany by a gRPC call.
func (c *Network) batchGet(ctx context.Context, keys [][]byte, at backend.ReadVersion, t *backend.Timings, found func(int, backend.Value, bool)) error {
	var response *kvdpb.BatchGetResponse
	timer := startTimer(t)
	err := c.unary(ctx, timer, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		response, err = conn.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: keys, AtVersion: at.Version, Epoch: at.Epoch, Options: timer.readOptions(at)}, opts...)
		timer.answered(response.GetMeta())
		return err
	})
	if err != nil {
		return err
	}
	if len(response.Lookups) != len(keys) {
		return &backend.Failure{Attempts: 1, Err: backend.ErrInternal, Message: "the server answered another number of keys"}
	}
	c.requestIDs.observe(response.GetMeta().GetVersion())
	for i, l := range response.Lookups {
		var v backend.Value
		if l.Found {
			v = valueOf(l.Item)
		}
		found(i, v, l.Found)
	}
	return nil
}

// fitFrame reports whether one frame can read all keys.
func (c *Network) fitFrame(keys [][]byte) bool {
	if c.options.Unframed || len(keys) == 0 || len(keys) > frame.MaxOps {
		return false
	}
	bytes := 0
	for _, key := range keys {
		bytes += len(key)
	}
	return bytes <= c.options.Frames.Bytes
}

// manyBytes is the most bytes of values that a GetMany at a version gets in a frame: the limit of a server
// for batches, as it is by default.
const manyBytes = 8 << 20

// tryTogether attempts to read the keys once, in one frame. tooMuch says that the values may exceed the
// server's limit, which it does not apply to a frame of reads at a version; a gRPC call has it decide.
func (c *Network) tryTogether(ctx context.Context, keys [][]byte, at backend.ReadVersion, tries *attempts, found func(int, backend.Value, bool)) (f *fault, tooMuch bool) {
	conn := c.pickFor(together)
	tries.conn = conn
	op := frame.Op{Kind: frame.Get, AtVersion: at.Version, Epoch: at.Epoch}
	wait := c.setTimeout(&op, tries)
	ctx, cancel := tries.within(ctx)
	defer cancel()
	pending, f := conn.addTogether(ctx, keys, op, wait, tries.timer.beginAttempt())
	if f != nil {
		tries.bound(time.Now())
		return f, false
	}
	begun, bytes := pending[0].frame.created, 0
	for i := range pending {
		a, fault := conn.await(ctx, &pending[i], &op, tries.deadline.IsZero())
		if fault != nil && fault.reason != kvdpb.ReasonKeyNotFound && f == nil {
			f = fault
		}
		if bytes += len(a.Value.Bytes); at.Version != 0 && bytes > manyBytes {
			tooMuch = true
			continue // the rest may have been dropped
		}
		found(i, a.Value, fault == nil)
	}
	if tooMuch {
		tries.bound(begun)
		return nil, true
	}
	if f != nil {
		tries.bound(begun)
		tries.unanswered(f, begun)
	}
	return f, false
}

// addTogether queues a frame with the reads of one call, or performs them if the caller is alone. If op
// has no version, the server chooses one for the whole frame.
func (c *conn) addTogether(ctx context.Context, keys [][]byte, op frame.Op, wait time.Duration, t *attemptTimes) ([]pendingOp, *fault) {
	c.mu.Lock()
	if f := c.reachLocked(together); f != nil {
		c.mu.Unlock()
		return nil, f
	}
	f := newPendingFrame(c, together)
	if f.oneVersion = op.AtVersion == 0; !f.oneVersion {
		f.most = manyBytes
	}
	pending := make([]pendingOp, len(keys))
	for i, key := range keys {
		op.Key = key
		pending[i] = f.add(&op, wait)
	}
	pending[0].recordIn(t)
	q := &c.mu.queues[together]
	q.sealed = append(q.sealed, f)
	c.load(together).Add(int64(len(keys)))
	c.watchLocked()
	if !c.performAloneLocked(ctx, f) {
		if fc := c.mu.current; fc != nil {
			fc.wakeForLocked(q)
		}
		c.mu.Unlock()
	}
	return pending, nil
}
