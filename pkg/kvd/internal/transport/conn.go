package transport

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// conn has two connections to one endpoint: a frameConn for frames, and a gRPC connection for all
// other calls. Each is opened when it is first needed.
//
// If the window of a queue is in flight, later operations form the next frame of the queue. So
// frames grow with the load, without a timer (natural batching). If a queue has nothing in flight,
// the caller sends the frame on its own goroutine. The sender of the frameConn sends all other
// frames: it may wait for the network without delaying a caller past its deadline.
//
// Invariants:
//
//	I1. At most one frameConn is current. Another one is opened while there is none, or to
//	    replace a gRPC stream by a connection for raw frames.
//	I2. A frame on a queue will be sent, failed or abandoned: while there is no frameConn, one
//	    is being opened; otherwise the sender is awake, or will be woken when it may send.
//	I3. One goroutine at a time writes to a frameConn.
type conn struct {
	client   *Network
	endpoint int // index
	grpc     *grpc.ClientConn
	kv       kvdpb.KVServiceClient
	raw      rawTarget
	// calls counts the gRPC calls in flight; readers and writers count the operations that
	// wait for a frame or are in flight in one.
	calls, readers, writers atomic.Int64

	mu struct {
		sync.Mutex
		queues     [batchKeys]sendQueue
		current    *frameConn   // takes frames; nil: none, or one is being opened
		frameConns []*frameConn // all that have not ended, including those that only receive
		opening    bool
		grpc       fallback
		// refusal is why the last of failures attempts in a row could not open a frameConn.
		// Until until there is no other attempt, and calls fail with refusal.
		refusal  *fault
		until    time.Time
		failures int
		watchdog watchdog
	}
}

// load returns the counter of the operations of a batch key.
func (c *conn) load(key batchKey) *atomic.Int64 {
	if key < writing {
		return &c.readers
	}
	return &c.writers
}

// do performs one operation and waits for the answer, which came by via. begun is when the
// client's timeout started; if bounded is set, that timeout ends the call.
func (c *conn) do(ctx context.Context, op *frame.Op, wait time.Duration, bounded bool, t *attemptTimes) (a answer, via *frameConn, begun time.Time, f *fault) {
	key := batchKeyOf(op)
	c.mu.Lock()
	f = c.reachLocked(key)
	if f == nil && key.calls() && !c.mayTakeCallsLocked() {
		f = newFault(errNoCalls, true)
	}
	if f != nil {
		c.mu.Unlock()
		return answer{}, nil, time.Now(), f
	}
	p := c.addLocked(key, op, wait)
	p.markBlocking()
	p.recordIn(t)
	if !c.performAloneLocked(ctx, p.frame) {
		leads := c.leadsLocked(&p)
		c.mu.Unlock()
		if leads {
			runtime.Gosched() // callers that are about to add an operation make the frame larger
			c.lead(p.frame)
		}
	}
	begun = p.frame.created
	a, f = c.await(ctx, &p, op, bounded)
	return a, p.via, begun, f
}

// callersResumed records that all callers of a completed frame have resumed.
func (c *conn) callersResumed(key batchKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.mu.queues[key]
	q.resuming--
	if fc := c.mu.current; fc != nil {
		fc.wakeForLocked(q)
	}
}

// reachLocked opens a frameConn for an operation if there is none. It returns a fault if none may be
// opened now.
func (c *conn) reachLocked(key batchKey) *fault {
	if c.mu.current != nil && key >= writing {
		c.mu.current.leaveIfEndedLocked()
	}
	if c.mu.current != nil || c.mu.opening {
		return nil
	}
	if c.mu.refusal != nil && time.Now().Before(c.mu.until) {
		f := *c.mu.refusal
		return &f
	}
	c.openLocked()
	return nil
}

// mayTakeCallsLocked reports whether calls may be added to frames. If no frameConn is current, that is
// known only once it is open: see currentLocked.
func (c *conn) mayTakeCallsLocked() bool {
	if c.mu.current == nil {
		return c.raw.dial != nil
	}
	return c.mu.current.transport.takesCalls()
}

// addLocked adds an operation to the open frame of a queue.
func (c *conn) addLocked(key batchKey, op *frame.Op, wait time.Duration) pendingOp {
	q := &c.mu.queues[key]
	if q.open != nil && q.open.full(op) {
		q.seal()
	}
	if q.open == nil {
		q.open = newPendingFrame(c, key)
		c.watchLocked()
	}
	c.load(key).Add(1)
	return q.open.add(op, wait)
}

// ownBytes bounds the bytes in flight while a caller sends its own frame. It is half of the
// smallest initial send buffer of a socket, so the caller never waits for the network.
const ownBytes = 8 << 10

// leadsLocked reports whether the caller that has just added an operation sends the frame
// itself. Otherwise the sender sends it, or the caller that added the first operation.
func (c *conn) leadsLocked(p *pendingOp) bool {
	f, fc := p.frame, c.mu.current
	if f.led || fc == nil {
		return false
	}
	q := &c.mu.queues[f.batchKey]
	if p.position == f.unawaited && q.inFlight == 0 && len(q.sealed) == 0 && fc.mayLeadLocked(f) {
		f.led = true
		return true
	}
	fc.wakeForLocked(q)
	return false
}

// lead sends a frame for all its callers. If it may no longer do that, it leaves the frame to the
// sender.
func (c *conn) lead(f *pendingFrame) {
	c.mu.Lock()
	f.led = false
	fc := c.mu.current
	switch {
	case f.state != filling || fc == nil:
		c.mu.Unlock()
	case c.mu.queues[f.batchKey].next() == f && fc.mayLeadLocked(f):
		fc.sendLocked(&c.mu.queues[f.batchKey])
	default:
		fc.wakeLocked()
		c.mu.Unlock()
	}
}

// wakeLocked wakes the sender of the current frameConn if it may send something.
func (c *conn) wakeLocked() {
	if c.mu.current != nil {
		c.mu.current.wakeLocked()
	}
}

// await waits for the answer of an operation that was added to a frame.
func (c *conn) await(ctx context.Context, p *pendingOp, op *frame.Op, bounded bool) (answer, *fault) {
	done := ctx.Done()
	for {
		if done == nil {
			<-p.progress
		} else {
			select {
			case <-p.progress:
			case <-done:
				return c.giveUp(p, op, ctx.Err())
			}
		}
		f := p.frame
		if f.over.Load() {
			a, fault, _ := p.outcome(op)
			p.release()
			return a, fault
		}
		c.mu.Lock()
		a, fault, there := p.outcome(op)
		expired := f.expired && bounded
		p.progress = f.progressAt(p.position)
		c.mu.Unlock()
		switch {
		case there:
			p.release()
			return a, fault
		case expired:
			return c.giveUp(p, op, context.DeadlineExceeded)
		}
	}
}

// giveUp ends the wait of a caller. If the frame has not been sent, the operation is removed
// from it.
func (c *conn) giveUp(p *pendingOp, op *frame.Op, why error) (answer, *fault) {
	f := p.frame
	c.mu.Lock()
	a, fault, there := p.outcome(op)
	if there {
		c.mu.Unlock()
		p.release()
		return a, fault
	}
	undone := f.state == filling
	empty := false
	if undone {
		f.request.Skip(p.offset)
		f.abandoned++
		if empty = f.abandoned == f.count; empty {
			c.mu.queues[f.batchKey].drop(f)
			f.endLocked(nil)
		}
	}
	c.mu.Unlock()
	if empty {
		f.wake()
	}
	if !undone && op.Kind == frame.Call && op.Method == methodBeginSnapshot.frame {
		c.releaseLate(*p, *op)
	} else {
		p.release()
	}
	return answer{}, newFault(why, undone)
}

func newFault(why error, undone bool) *fault { return &fault{err: why, undone: undone} }
