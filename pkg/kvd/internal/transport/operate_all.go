package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// inFrame is an operation of OperateAll that is sent in a frame.
type inFrame struct {
	*backend.Operation
	op      frame.Op
	tries   attempts
	pending pendingOp
	fault   *fault // of the last attempt
}

// OperateAll implements backend.Backend.
func (c *Network) OperateAll(ctx context.Context, all []*backend.Operation) {
	framed := make([]*inFrame, 0, len(all))
	for _, o := range all {
		f := &inFrame{Operation: o, op: frameOp(&o.Op)}
		if c.travelsAlone(&f.op) {
			o.Answer, o.Err = c.Operate(ctx, o.Op, o.Timings)
			continue
		}
		framed = append(framed, f)
	}
	for _, o := range framed {
		o.tries = c.attemptsAt(ctx, &o.op)
		o.tries.timer = startTimer(o.Timings)
		o.tries.asCall = o.Op.At.Loose()
	}
	framed = c.operateAsCalls(ctx, framed)
	for len(framed) > 0 {
		c.tryAll(ctx, framed)
		c.seekLeader(ctx, framed)
		again, wait := retries(framed)
		if len(again) == 0 {
			return
		}
		if err := backend.Pause(ctx, wait); err != nil {
			for _, o := range again {
				o.Err = o.tries.interrupted(err, o.fault)
			}
			return
		}
		framed = c.operateAsCalls(ctx, again)
	}
}

// maxAsCalls bounds the gRPC calls of one pipeline at a time.
const maxAsCalls = 64

// operateAsCalls performs the operations that have to be gRPC calls, and returns the others.
func (c *Network) operateAsCalls(ctx context.Context, all []*inFrame) (framed []*inFrame) {
	if !slices.ContainsFunc(all, func(o *inFrame) bool { return o.tries.asCall }) {
		return all
	}
	var running sync.WaitGroup
	places := make(chan struct{}, maxAsCalls)
	for _, o := range all {
		if !o.tries.asCall {
			framed = append(framed, o)
			continue
		}
		places <- struct{}{}
		running.Go(func() {
			o.Answer, o.Err = c.operateAlone(ctx, &o.Operation.Op, o.tries)
			<-places
		})
	}
	running.Wait()
	return framed
}

// seekLeader decides where to attempt the writes that were refused because another node leads. A node
// does not say in a frame whether it knows which one leads, so they are attempted in frames of each other
// endpoint at once. If all have refused, one write is attempted as a call that its server forwards. If that
// works, so are the others. If it does not, no node leads or none of the servers reaches the one that does:
// all wait, and begin anew in frames, since a pipeline that finds its leader again should not have become
// thousands of calls meanwhile.
//
// What was refused in a frame had no effect, and the write that asks keeps its request id, so none is applied
// twice: see P1.
func (c *Network) seekLeader(ctx context.Context, tried []*inFrame) {
	asked, forwards := false, false
	for _, o := range tried {
		if o.fault == nil || o.fault.reason != kvdpb.ReasonNotLeader || !o.tries.mayForward() {
			continue
		}
		everywhere := o.tries.direct == c.endpoints-1
		if everywhere && !asked {
			asked, forwards = true, c.askToForward(ctx, o)
			continue
		}
		o.fault.elsewhere = !everywhere || forwards
	}
}

// askToForward attempts a write that was refused in a frame as a call that the server forwards, and reports
// whether that was answered as any write may be.
func (c *Network) askToForward(ctx context.Context, o *inFrame) (forwards bool) {
	o.tries.n++ // the attempt in the frame
	o.tries.judge(o.fault)
	o.tries.directs++
	o.tries.forward = true
	o.fault = c.tryUnary(ctx, &o.tries, c.alone(&o.Op, &o.tries, &o.Answer))
	o.tries.asCall = false
	return o.fault == nil || o.fault.reason != kvdpb.ReasonNotLeader && !o.fault.transient && o.fault.reason != ""
}

// retries returns the operations that should be tried again, and the wait before that. It sets the
// errors of the others. Those for which the server has done nothing are one retry for the budget: it
// could not be reached, is stopping, or does not lead its cluster, so all share the fault, and the
// frames of the next attempt. A refusal because of overload is a load, and costs each a retry.
func retries(tried []*inFrame) (again []*inFrame, wait time.Duration) {
	paid := false
	for _, o := range tried {
		if o.fault == nil {
			o.tries.succeeded()
			continue
		}
		shares := o.fault.undone && o.fault.reason != kvdpb.ReasonOverloaded
		o.tries.paid = shares && paid
		after, err := o.tries.next(o.fault)
		if o.Err = err; err == nil {
			paid = paid || shares
			again = append(again, o)
			wait = max(wait, after)
		}
	}
	return again, wait
}

// maxAhead bounds the operations of one pipeline in flight: some full frames, so that the server
// always has one to serve.
const maxAhead = 4 * frame.MaxOps

// tryAll attempts the operations once, in frames of one connection.
func (c *Network) tryAll(ctx context.Context, all []*inFrame) {
	conn := c.pick(func(c *conn) int64 { return c.readers.Load() + c.writers.Load() })
	added := 0
	for i, o := range all {
		for ; added < len(all) && added-i < maxAhead; added++ {
			c.enqueue(ctx, conn, all[added])
		}
		if o.fault != nil {
			continue
		}
		begun := o.pending.frame.created
		ctx, cancel := o.tries.within(ctx)
		o.Answer, o.fault = conn.await(ctx, &o.pending, &o.op, o.tries.deadline.IsZero())
		cancel()
		if o.fault != nil {
			o.tries.bound(begun)
			o.tries.unanswered(o.fault, begun)
		}
	}
}

// enqueue adds an operation to a frame without waiting for it. The sender sends it.
func (c *Network) enqueue(ctx context.Context, conn *conn, o *inFrame) {
	o.tries.conn = conn
	o.tries.sign(&o.op.Options)
	wait := c.setTimeout(&o.op, &o.tries)
	err := ctx.Err()
	if err == nil && !o.tries.deadline.IsZero() && time.Until(o.tries.deadline) <= 0 {
		err = context.DeadlineExceeded
	}
	if err != nil {
		o.fault = newFault(err, true)
		return
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	key := batchKeyOf(&o.op)
	if o.fault = conn.reachLocked(key); o.fault != nil {
		o.tries.bound(time.Now())
	} else {
		o.pending = conn.addLocked(key, &o.op, wait)
		o.pending.recordIn(o.tries.timer.beginAttempt())
		if fc := conn.mu.current; fc != nil {
			fc.recallLocked() // as sending it would; the socket need not be asked for each operation
			fc.wakeForLocked(&conn.mu.queues[key])
		}
	}
}
