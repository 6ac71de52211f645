package transport

import (
	"context"
	"io"
)

// receiveToken is held by the one goroutine that receives on a frameConn: its receiver or, if the
// transport is a callerTransport, a lone caller, which then needs no other goroutine to wake it when its
// answer has come. It is guarded by conn.mu.
//
// Invariants:
//
//	T1. While frames are in flight the token is not free.
//	T2. A token that is free returns to the receiver within two ticks of the watchdog, so that it
//	    notices what the server sends unasked, and the end of the connection.
//	T3. Only the receiver ends the frameConn. A caller whose receiving fails passes the error on.
//	T4. No write is sent on a connection whose end came while the token was free: it would be in doubt.
type receiveToken struct {
	holder tokenHolder
	lone   int           // frames of a single caller that were in flight alone, one after the other
	seen   uint64        // frameConn.received when the watchdog last saw the token free
	failed error         // of a caller that received, for the receiver
	passed chan struct{} // has a value when the token has been passed to the receiver
}

type tokenHolder uint8

const (
	heldByReceiver tokenHolder = iota
	heldByCaller
	free
)

// loneFrames is how many lone frames must have followed each other before a caller receives. If several
// callers take turns without being alone, passing the token on costs more than it saves. Guessed.
const loneFrames = 16

// callerTransport is a transport on which callers may receive.
type callerTransport interface {
	frameTransport
	// arrival waits until answers arrive. It reports false if receive would have to wait for the rest
	// of them, or if interrupt ended the wait. Only the goroutine that receives may call it.
	arrival() (whole bool, err error)
	// interrupt ends arrival, or the next one.
	interrupt()
	// quiet reports whether nothing has arrived, neither answers nor the end of the connection. It
	// does not wait. Only the goroutine that receives may call it, or any while the token is free and
	// conn.mu is held. If it reports false, the transport can only be closed.
	quiet() bool
}

// directTransport returns a transport as a callerTransport, nil if callers may not receive on it.
func directTransport(transport frameTransport) callerTransport {
	if raw, ok := transport.(*rawTransport); ok && raw.socket != nil {
		return raw
	}
	return nil
}

// countLoneLocked counts a frame that has ended.
func (fc *frameConn) countLoneLocked(f *pendingFrame) {
	switch {
	case !f.ofOneCaller() || len(fc.frames) > 0:
		fc.token.lone = 0
	case fc.token.lone < loneFrames:
		fc.token.lone++
	}
}

// restLocked makes the token free, and reports that, if a lone caller is likely to come next. The
// goroutine that holds it must have nothing left to receive.
func (fc *frameConn) restLocked() bool {
	t := &fc.token
	if fc.direct == nil || t.lone < loneFrames || len(fc.frames) > 0 || fc.retired || fc.silent {
		return false
	}
	t.holder, t.seen = free, 0
	return true
}

// performAloneLocked sends a frame to which an operation has just been added, and receives its answers,
// if the token is free and no other caller uses the frame. Otherwise it reports false, and does nothing;
// if it reports true, it has released the lock.
func (c *conn) performAloneLocked(ctx context.Context, f *pendingFrame) bool {
	fc, q := c.mu.current, &c.mu.queues[f.batchKey]
	if fc == nil || fc.token.holder != free || !f.ofOneCaller() || q.next() != f || !fc.mayLeadLocked(f) {
		return false
	}
	fc.token.holder = heldByCaller
	fc.sendLocked(q)
	fc.receiveOwn(ctx, f)
	return true
}

// leaveIfEndedLocked is called before a write is added. If something has come while the token was free,
// the server has ended the connection, or is about to, and another one is used. See T4.
func (fc *frameConn) leaveIfEndedLocked() {
	if fc.token.holder == free && !fc.direct.quiet() {
		fc.retired = true
		fc.conn.forgetLocked(fc)
		fc.transport.close()
		fc.passLocked(io.EOF)
	}
}

// recallLocked passes the token to the receiver if it is free.
func (fc *frameConn) recallLocked() {
	if fc.token.holder == free {
		fc.passLocked(nil)
	}
}

// passLocked passes the token to the receiver, which waits for it. An error ends the frameConn.
func (fc *frameConn) passLocked(err error) {
	fc.token.holder, fc.token.failed = heldByReceiver, err
	fc.token.passed <- struct{}{}
}

// awaitToken is called by the receiver after it made the token free. It returns the error of a caller.
func (fc *frameConn) awaitToken() error {
	<-fc.token.passed
	fc.conn.mu.Lock()
	defer fc.conn.mu.Unlock()
	return fc.token.failed
}

// receiveOwn is called by the caller of f, which holds the token. It receives until f has ended, ctx has
// ended, the watchdog interrupts it, or an answer has arrived in part only.
func (fc *frameConn) receiveOwn(ctx context.Context, f *pendingFrame) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, fc.direct.interrupt)()
	}
	whole, rests, err := true, false, error(nil)
	for whole && err == nil && !f.over.Load() {
		if whole, err = fc.direct.arrival(); whole && err == nil {
			rests, err = fc.receiveOne()
		}
	}
	if !rests {
		fc.conn.mu.Lock()
		defer fc.conn.mu.Unlock()
		fc.passLocked(err)
	}
}

// watchTokenLocked looks after the token once a tick. It reports whether the watchdog should go on.
func (fc *frameConn) watchTokenLocked() bool {
	t := &fc.token
	if t.holder == free {
		if t.seen == fc.received {
			fc.recallLocked()
		}
		t.seen = fc.received
	}
	return t.holder != heldByReceiver
}
