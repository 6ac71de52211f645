package transport

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
)

// frameTransport sends frames to a server and receives its answers, on a connection for raw frames
// or on a Pipeline stream of gRPC. One goroutine at a time sends, and one receives.
type frameTransport interface {
	// takesCalls reports whether frames may have calls.
	takesCalls() bool
	// send sends the frame that b builds. After an error, left reports whether the server
	// may have received all of it.
	send(b *frame.Builder, h frame.Header) (left bool, err error)
	// receive waits for the next answers and fills r with them.
	receive(r *frame.Response) error
	// finish ends the transport after all frames were answered.
	finish()
	// close ends send and receive. It may be called at any time, and again.
	close()
}

// frameConn is a transport and the frames in flight on it. Its receiver, its sender and callers that
// send their own frame use it.
type frameConn struct {
	conn      *conn
	transport frameTransport
	direct    callerTransport // transport, if callers may receive on it
	wake      chan struct{}   // has a value when the sender has work
	done      chan struct{}   // closed when receiving has ended
	epoch     atomic.Uint64   // of the server's store, which snapshots tell; 0: not known

	// Guarded by conn.mu.
	sending  bool
	woken    bool          // wake has a value, or had one that the sender has not acted on
	retired  bool          // takes no more frames: the server is going away, or it was replaced
	finished bool          // transport.finish was called
	silent   bool          // nothing arrived for too long
	asking   bool          // the endpoint is being asked whether it serves requests
	served   time.Time     // when it said last that it does
	broken   *fault        // why receiving has ended
	torn     *pendingFrame // was not written completely, if any
	frames   []*pendingFrame
	writes   int // of the frames, those of writes
	leases   int // of the frames, those of calls about snapshots
	bytes    int // of the frames' requests
	lastID   uint32
	// received counts the frames that have arrived. At heard the watchdog last saw a new count,
	// which is seen.
	heard          time.Time
	received, seen uint64
	token          receiveToken
}

func (c *conn) newFrameConn(transport frameTransport) *frameConn {
	return &frameConn{
		conn: c, transport: transport, direct: directTransport(transport),
		wake: make(chan struct{}, 1), done: make(chan struct{}), heard: time.Now(),
		token: receiveToken{passed: make(chan struct{}, 1)},
	}
}

// run runs a frameConn until it ends.
func (fc *frameConn) run() {
	c, transport := fc.conn, fc.transport
	stop := context.AfterFunc(c.client.life, fc.hangUp)
	var sender sync.WaitGroup
	sender.Go(fc.send)
	fc.end(fc.receive())
	transport.close()
	close(fc.done)
	sender.Wait()
	stop()
}

// maxWrites bounds the frames in flight on a frameConn whose answers wait for writes: those of writes,
// and those of calls about snapshots, since a snapshot begins when acknowledged writes are visible. A
// server serves eight frames of a connection at a time, so reads never wait for writes to be synced.
const maxWrites = 6

// callWindow is the window of calls. The server performs and answers each call of a frame by itself,
// so calls gain nothing from waiting for others. With windows of 2 and frames that were coalesced as
// those of writes are, 64 and 128 callers of transactions had 0.85 of the rate.
const callWindow = 4

// windowOf returns how many frames of a batch key may be in flight.
func (fc *frameConn) windowOf(k batchKey) int {
	if k.calls() {
		return max(callWindow, fc.conn.client.options.Window)
	}
	return fc.conn.client.options.Window
}

// mayTakeLocked reports whether the next frame of a queue may be sent now.
func (fc *frameConn) mayTakeLocked(q *sendQueue) bool {
	return q.waiting() && q.inFlight < fc.windowOf(q.next().batchKey) &&
		(q.next().batchKey < leasing || fc.writes+fc.leases < maxWrites) && !fc.shouldCoalesceLocked(q)
}

// shouldCoalesceLocked reports whether the next frame of a queue should wait for more operations:
// it is small, and the previous frame has completed but its callers have not all resumed. Writes
// that wait for the disk also wait while a frame of the same batch key is in flight on fc, because
// the disk would sync the two separately. Reads do not wait while writes are in flight.
func (fc *frameConn) shouldCoalesceLocked(q *sendQueue) bool {
	next := q.next()
	if next == q.open && next.count == next.unawaited {
		return true // until another call joins it, or the watchdog seals it
	}
	if next != q.open || !next.batchKey.coalesces() || next.enough() || next.batchKey == reading && fc.writes > 0 {
		return false
	}
	return q.resuming > 0 || next.batchKey.waitsForDisk() &&
		slices.ContainsFunc(fc.frames, func(f *pendingFrame) bool { return f.batchKey == next.batchKey && !f.answered })
}

// freeLocked reports whether the frameConn takes frames and no goroutine is sending.
func (fc *frameConn) freeLocked() bool { return !fc.sending && !fc.retired && fc.broken == nil }

// mayLeadLocked reports whether a caller may send a frame.
func (fc *frameConn) mayLeadLocked(f *pendingFrame) bool {
	return fc.freeLocked() && fc.bytes+f.request.Len() <= ownBytes && fc.mayTakeLocked(&fc.conn.mu.queues[f.batchKey])
}

// nextLocked returns a queue whose next frame may be sent, nil if there is none.
func (fc *frameConn) nextLocked() *sendQueue {
	if fc.freeLocked() {
		for i := range fc.conn.mu.queues {
			q := &fc.conn.mu.queues[i]
			if q.waiting() && !q.next().led && fc.mayTakeLocked(q) {
				return q
			}
		}
	}
	return nil
}

// wakeLocked wakes the sender if there is a frame that it may send.
func (fc *frameConn) wakeLocked() {
	if !fc.woken && fc.nextLocked() != nil {
		fc.woken = true
		fc.wake <- struct{}{}
	}
}

// wakeForLocked is wakeLocked for a caller that has added an operation to one queue.
func (fc *frameConn) wakeForLocked(q *sendQueue) {
	if !fc.woken && fc.freeLocked() && fc.mayTakeLocked(q) {
		fc.woken = true
		fc.wake <- struct{}{}
	}
}

// send sends the frames that callers do not send themselves, until receiving has ended.
func (fc *frameConn) send() {
	for {
		select {
		case <-fc.wake:
		case <-fc.done:
			return
		}
		runtime.Gosched() // callers that are about to add an operation make the frames larger
		fc.conn.mu.Lock()
		fc.woken = false
		for q := fc.nextLocked(); q != nil; q = fc.nextLocked() {
			fc.sendLocked(q)
			fc.conn.mu.Lock()
		}
		fc.conn.mu.Unlock()
	}
}

// sendLocked sends the next frame of a queue. It releases the lock.
func (fc *frameConn) sendLocked(q *sendQueue) {
	f := fc.takeLocked(q)
	f.refs.Add(1) // all answers may arrive, and all callers return, before send returns
	defer f.release()
	fc.sending = true
	fc.conn.mu.Unlock()
	left, err := fc.transport.send(&f.request, f.header(fc.conn.client.options.Timeout))
	fc.conn.mu.Lock()
	fc.sending = false
	if err != nil {
		// The receiver gets the error of the connection.
		if !left {
			fc.torn = f
		}
		fc.transport.close()
	}
	fc.conn.wakeLocked()
	fc.settle()
}

// takeLocked moves the next frame of a queue to the frameConn.
func (fc *frameConn) takeLocked(q *sendQueue) *pendingFrame {
	f := q.next()
	q.drop(f)
	q.inFlight++
	fc.lastID++
	f.state, f.id, f.bytes = sent, fc.lastID, f.request.Len()
	f.via, f.epoch = fc, fc.epoch.Load()
	if f.timed {
		f.sentAt = time.Now()
	}
	fc.frames = append(fc.frames, f)
	fc.bytes += f.bytes
	fc.countLocked(f, 1)
	fc.recallLocked()
	return f
}

// endLocked removes a frame from the frameConn and marks it as over.
func (fc *frameConn) endLocked(f *pendingFrame, why *fault) {
	i := slices.Index(fc.frames, f)
	last := len(fc.frames) - 1
	fc.frames[i] = fc.frames[last]
	fc.frames[last] = nil
	fc.frames = fc.frames[:last]
	fc.bytes -= f.bytes
	fc.countLocked(f, -1)
	fc.leaveWindowLocked(f)
	f.endLocked(why)
}

// countLocked counts a frame among those that maxWrites bounds.
func (fc *frameConn) countLocked(f *pendingFrame, n int) {
	switch {
	case f.batchKey >= writing:
		fc.writes += n
	case f.batchKey == leasing:
		fc.leases += n
	}
}

// leaveWindowLocked makes room for the next frame in the window, once for each frame.
func (fc *frameConn) leaveWindowLocked(f *pendingFrame) {
	if !f.answered {
		f.answered = true
		fc.conn.mu.queues[f.batchKey].inFlight--
	}
}

// receive receives answers until the transport ends, and returns why it ended.
func (fc *frameConn) receive() error {
	for {
		rests, err := fc.receiveOne()
		if rests && err == nil {
			err = fc.awaitToken()
		}
		if err != nil {
			return err
		}
	}
}

// receiveOne receives one frame of answers and delivers it. It reports whether the token is free now;
// otherwise the goroutine still holds it.
func (fc *frameConn) receiveOne() (rests bool, err error) {
	r := responses.Get().(*frame.Response)
	if err := fc.transport.receive(r); err != nil {
		return false, err
	}
	return fc.deliver(r)
}

// deliver delivers a response to its frame. It returns an error if the response has answers that
// were not asked for, or if the server refuses the connection.
func (fc *frameConn) deliver(r *frame.Response) (rests bool, err error) {
	if r.Refused {
		return false, &refusal{r}
	}
	fc.conn.client.requestIDs.observe(newest(r))
	inOrder := inOrder(r)
	fc.conn.mu.Lock()
	fc.received++
	f := fc.frameLocked(r)
	var all, calls, dropped bool
	var wake chan struct{}
	ok := f != nil || len(r.Results) == 0
	if f != nil {
		if dropped = f.drops(); dropped {
			all, ok = f.drop(r)
		} else {
			all, ok = f.deliver(r, inOrder)
		}
		switch calls = f.batchKey.calls() && ok && !all; {
		case all:
			fc.endLocked(f, nil)
			fc.countLoneLocked(f)
		case calls:
			fc.leaveWindowLocked(f) // what is still being performed delays no other call
			f.refs.Add(1)           // its callers may return before they are told
		default:
			wake = f.roundLocked()
		}
	}
	if r.GoingAway {
		fc.retired = true
		fc.conn.forgetLocked(fc)
	}
	fc.conn.wakeLocked()
	if ok {
		rests = fc.restLocked()
	}
	fc.settle()
	switch {
	case all:
		f.wake()
	case calls:
		for i := range r.Results {
			f.tell(int(r.Results[i].Tag))
		}
		f.unref(1)
	case wake != nil:
		close(wake)
	}
	if f == nil || dropped {
		r.Release()
		responses.Put(r)
	}
	if !ok {
		return false, status.Error(codes.Internal, "the server answered what was not asked")
	}
	return rests, nil
}

// frameLocked returns the frame that a response answers, nil if there is none.
func (fc *frameConn) frameLocked(r *frame.Response) *pendingFrame {
	if len(r.Results) == 0 || !r.Compact {
		return nil
	}
	for _, f := range fc.frames {
		if f.id == r.ID {
			return f
		}
	}
	return nil
}

// newest returns the newest version in a response.
func newest(r *frame.Response) (version uint64) {
	for i := range r.Results {
		version = max(version, r.Results[i].Version, r.Results[i].ItemVersion)
	}
	return version
}

// inOrder reports whether a response has the first results of a frame, in order.
func inOrder(r *frame.Response) bool {
	n := len(r.Results)
	return n > 0 && r.Results[0].Tag == 0 && r.Results[n-1].Tag == uint64(n-1)
}

// end is called when receiving has ended, with the error.
func (fc *frameConn) end(err error) {
	fc.conn.mu.Lock()
	lost := len(fc.frames) > 0
	if fc.silent {
		err = errSilent
	}
	fc.broken = faultOfStream(err)
	fc.conn.mu.frameConns = slices.DeleteFunc(fc.conn.mu.frameConns, func(other *frameConn) bool { return other == fc })
	fc.conn.forgetLocked(fc)
	fc.settle()
	if lost {
		fc.conn.client.options.Logger.Warn("kvd: a stream ended with operations under way", "error", err)
	}
}

// settle releases the lock. If no goroutine is sending, it first fails the frames of a broken
// frameConn, or finishes a retired one on which nothing is in flight.
func (fc *frameConn) settle() {
	switch {
	case fc.sending || fc.broken == nil && !fc.retired:
		fc.conn.mu.Unlock()
	case fc.broken != nil:
		lost := slices.Clone(fc.frames)
		for _, f := range lost {
			why := *fc.broken
			why.undone = why.undone || f == fc.torn
			fc.endLocked(f, &why)
		}
		fc.conn.wakeLocked() // the windows have room for other frames
		fc.conn.mu.Unlock()
		wakeAll(lost)
	case len(fc.frames) == 0 && !fc.finished:
		fc.finished = true
		fc.conn.mu.Unlock()
		fc.transport.finish()
	default:
		fc.conn.mu.Unlock()
	}
}
