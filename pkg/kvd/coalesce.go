package kvd

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// lane makes frames of what concurrent callers ask for: reads or writes of one
// connection. What queues while the window is full makes the next frame, so
// frames grow with the load and no timer is needed (natural batching).
//
// A caller that finds nothing under way sends its frame itself, on its own
// goroutine. That never blocks it: with every earlier frame answered, the
// transport's quota is free. All other frames are sent by the stream's sender,
// which may wait for the network without keeping a caller from its deadline.
//
// Invariants:
//
//	I1. A call is queued (its slices are the caller's), or in a frame (its bytes
//	    were copied), or finished. It changes state under the lane's lock.
//	I2. The lane has at most one current stream, and opens one only while it has
//	    none.
//	I3. Every call is finished exactly once: by an answer, by the end of its
//	    stream, by the failure to open one, or by its caller giving up.
type lane struct {
	client *Client
	conn   *grpc.ClientConn
	// load is the number of calls queued or under way.
	load atomic.Int64

	mu struct {
		sync.Mutex
		queue   []*call
		current *stream // nil: none, or being opened
		opening bool
	}
}

// call is one operation of one caller.
type call struct {
	op    frame.Op
	state callState
	done  chan struct{} // gets one value when the call is finished by others
	timer *time.Timer   // stopped while nobody waits

	fault  *fault // nil on success
	answer answer
}

type callState uint8

const (
	queued   callState = iota
	sent               // its frame may have left
	finished           // done has a value, or will have presently
	given              // given up: its caller has gone
)

var calls = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &call{done: make(chan struct{}, 1), timer: timer}
}}

func newLane(c *Client, conn *grpc.ClientConn) *lane { return &lane{client: c, conn: conn} }

// do has the server perform c.op within the time left (0 is no bound), and fills
// c with the answer. It returns false if the caller gave up: c is then filled
// too, but must not be used for another call.
func (l *lane) do(ctx context.Context, c *call, left time.Duration) bool {
	l.load.Add(1)
	defer l.load.Add(-1)
	l.mu.Lock()
	c.state = queued
	l.mu.queue = append(l.mu.queue, c)
	own := l.joinLocked()
	l.mu.Unlock()
	if own != nil {
		runtime.Gosched() // those about to ask make the frame larger
		own.sendFrame()
	}

	var expired <-chan time.Time
	if left > 0 {
		c.timer.Reset(left)
		defer c.timer.Stop()
		expired = c.timer.C
	}
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
		return l.giveUp(c, ctx.Err())
	case <-expired:
		return l.giveUp(c, context.DeadlineExceeded)
	}
}

// joinLocked sees to it that the queue will be sent. It returns a stream if the
// caller is to send the frame.
func (l *lane) joinLocked() *stream {
	s := l.mu.current
	switch {
	case s == nil:
		l.openLocked()
		return nil
	case s.flying == 0 && !s.sending:
		s.sending = true
		return s
	default:
		s.wakeLocked()
		return nil
	}
}

// giveUp ends a call whose caller does not wait any longer. It returns true if
// the answer came first.
func (l *lane) giveUp(c *call, why error) bool {
	l.mu.Lock()
	undone := c.state == queued
	if c.state == finished {
		l.mu.Unlock()
		<-c.done
		return true
	}
	c.state = given
	l.mu.Unlock()
	c.fault = &fault{err: why, undone: undone}
	return false
}

// openLocked begins to open a stream.
func (l *lane) openLocked() {
	if l.mu.opening {
		return
	}
	l.mu.opening = true
	l.client.background.Go(l.open)
}

// takeLocked moves queued calls into a frame, within the caps, and returns the
// calls in the order of their operations.
func (l *lane) takeLocked(f *frame.Request) []*call {
	b := &l.client.config.batching
	taken, bytes, n := make([]*call, 0, min(len(l.mu.queue), b.MaxOps)), 0, 0
	for _, c := range l.mu.queue {
		if c.state == given {
			n++
			continue
		}
		if bytes += c.op.SizeBound(); len(taken) > 0 && bytes > b.MaxBytes || len(taken) == b.MaxOps {
			break
		}
		n++
		c.state = sent
		f.Ops = append(f.Ops, c.op)
		taken = append(taken, c)
	}
	rest := copy(l.mu.queue, l.mu.queue[n:])
	clear(l.mu.queue[rest:])
	l.mu.queue = l.mu.queue[:rest]
	return taken
}

// failQueueLocked takes the whole queue, to be finished by finish.
func (l *lane) failQueueLocked() []*call {
	var failed []*call
	for _, c := range l.mu.queue {
		if c.state != given {
			c.state = finished
			failed = append(failed, c)
		}
	}
	clear(l.mu.queue)
	l.mu.queue = l.mu.queue[:0]
	return failed
}

// finish tells the callers of finished calls that they failed.
func finish(calls []*call, f *fault) {
	for _, c := range calls {
		c.fault = f
		c.done <- struct{}{}
	}
}
