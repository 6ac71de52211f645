package transport

import (
	"math/rand/v2"
	"time"
)

// openLocked starts to open a frameConn, unless one is being opened.
func (c *conn) openLocked() {
	if !c.mu.opening {
		c.mu.opening = true
		c.client.background.Go(c.open)
	}
}

// The waits between attempts to open a frameConn are those of gRPC, with a smaller base and a
// smaller bound. Each wait is 1.6 times the previous one, ± 20 %.
const (
	reconnectBase   = 50 * time.Millisecond
	reconnectMax    = time.Second
	reconnectFactor = 1.6
	reconnectJitter = 0.2
)

func reconnectAfter(failures int) time.Duration {
	wait := float64(reconnectBase)
	for range failures - 1 {
		wait = min(wait*reconnectFactor, float64(reconnectMax))
	}
	return time.Duration(wait * (1 + reconnectJitter*(2*rand.Float64()-1)))
}

// open opens a frameConn and runs it until it ends.
func (c *conn) open() {
	transport, err := c.dial(c.client.life)
	if err != nil {
		c.refuse(err)
		return
	}
	fc := c.newFrameConn(transport)
	c.mu.Lock()
	c.mu.opening, c.mu.failures, c.mu.refusal = false, 0, nil
	refused := c.currentLocked(fc)
	c.mu.Unlock()
	wakeAll(refused)
	if _, raw := transport.(*rawTransport); !raw && c.raw.dial != nil {
		c.client.background.Go(func() { c.regainRaw(fc) })
	}
	fc.run()
}

// currentLocked makes fc the frameConn that takes frames. It ends and returns the frames of calls that
// fc does not take; the caller wakes their callers.
func (c *conn) currentLocked(fc *frameConn) (refused []*pendingFrame) {
	c.mu.current = fc
	c.mu.frameConns = append(c.mu.frameConns, fc)
	if !fc.transport.takesCalls() {
		refused = c.failQueuedLocked(batchKey.calls, newFault(errNoCalls, true))
	}
	fc.wakeLocked()
	return refused
}

// failQueuedLocked ends the frames that have not been sent, of these batch keys. The caller wakes
// their callers.
func (c *conn) failQueuedLocked(of func(batchKey) bool, why *fault) (failed []*pendingFrame) {
	for i := range c.mu.queues {
		if q := &c.mu.queues[i]; of(batchKey(i)) {
			q.seal()
			failed = append(failed, q.sealed...)
			clear(q.sealed)
			q.sealed = q.sealed[:0]
		}
	}
	for _, f := range failed {
		f.endLocked(why)
	}
	return failed
}

// refuse fails the frames that wait for a frameConn that could not be opened.
func (c *conn) refuse(err error) {
	f := faultOfStream(err)
	f.undone = true
	c.mu.Lock()
	c.mu.opening = false
	c.mu.failures++
	c.mu.refusal, c.mu.until = f, time.Now().Add(reconnectAfter(c.mu.failures))
	failed := c.failQueuedLocked(func(batchKey) bool { return true }, f)
	c.mu.Unlock()
	wakeAll(failed)
}

// waitingLocked reports whether a queue has a frame to send.
func (c *conn) waitingLocked() bool {
	for i := range c.mu.queues {
		if c.mu.queues[i].waiting() {
			return true
		}
	}
	return false
}

// forgetLocked is called when fc takes no more frames. It opens another frameConn if frames wait.
func (c *conn) forgetLocked(fc *frameConn) {
	if c.mu.current == fc {
		c.mu.current = nil
		if c.waitingLocked() {
			c.openLocked()
		}
	}
}
