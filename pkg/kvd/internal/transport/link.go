package transport

import (
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
)

// carrier sends frames to a server and receives its answers: a raw connection, or a Pipeline
// stream. One goroutine at a time sends, and one receives.
type carrier interface {
	// send sends the frame that b builds. After an error, left reports whether the server
	// may have received all of it.
	send(b *frame.Builder, h frame.Header) (left bool, err error)
	// receive waits for the next answers and fills r with them.
	receive(r *frame.Response) error
	// leave ends the carrier after everything was sent and answered.
	leave()
	// close ends send and receive. It may be called at any time, and again.
	close()
}

// link is a carrier and the frames in flight on it. Three parties use it: the receiver, the
// sender, and callers that send their own frame.
type link struct {
	conn    *conn
	carrier carrier
	wake    chan struct{} // has a value when the sender has work
	over    chan struct{} // closed when receiving has ended

	// Guarded by the connection's lock.
	sending bool
	woken   bool          // wake has a value, or had one that the sender has not acted on
	retired bool          // the server is going away: no further frames
	left    bool          // carrier.leave was called
	silent  bool          // nothing arrived for too long
	broken  *fault        // why receiving has ended
	torn    *pendingFrame // was not written completely
	frames  []*pendingFrame
	writes  int // of the frames
	bytes   int // of the frames' requests
	lastID  uint32
	// heard is the last time at which the watchdog saw that frames had arrived, received
	// counts frames, and seen is received at that time.
	heard          time.Time
	received, seen uint64
}

// maxWrites bounds the frames of writes in flight on a link. It is below the eight frames that a
// server serves at a time, so reads never wait for writes to be synced.
const maxWrites = 6

// mayTakeLocked reports whether the next frame of a queue may be sent now.
func (k *link) mayTakeLocked(q *sendQueue) bool {
	return q.waiting() && q.inFlight < k.conn.client.options.Window &&
		(q.next().batchKey < writing || k.writes < maxWrites) && !k.shouldCoalesceLocked(q)
}

// shouldCoalesceLocked reports whether the next frame of a queue should wait for more operations: it is
// small, and the previous frame has completed but its callers have not all resumed. Writes that
// wait for the disk also wait while a frame of the same batch key is in flight on this link, because
// the disk would sync the two separately. Reads do not wait while writes are in flight.
func (k *link) shouldCoalesceLocked(q *sendQueue) bool {
	next := q.next()
	if next != q.open || !next.batchKey.coalesces() || next.enough() || next.batchKey == reading && k.writes > 0 {
		return false
	}
	return q.resuming > 0 || next.batchKey.waitsForDisk() &&
		slices.ContainsFunc(k.frames, func(f *pendingFrame) bool { return f.batchKey == next.batchKey })
}

// freeLocked reports whether the link takes frames and no goroutine is sending.
func (k *link) freeLocked() bool { return !k.sending && !k.retired && k.broken == nil }

// mayLeadLocked reports whether a caller may send a frame.
func (k *link) mayLeadLocked(f *pendingFrame) bool {
	return k.freeLocked() && k.bytes+f.request.Len() <= ownBytes && k.mayTakeLocked(&k.conn.mu.queues[f.batchKey])
}

// nextLocked returns a queue whose next frame may be sent, nil if there is none.
func (k *link) nextLocked() *sendQueue {
	if k.freeLocked() {
		for i := range k.conn.mu.queues {
			q := &k.conn.mu.queues[i]
			if q.waiting() && !q.next().led && k.mayTakeLocked(q) {
				return q
			}
		}
	}
	return nil
}

// wakeLocked wakes the sender if there is a frame that it may send.
func (k *link) wakeLocked() {
	if !k.woken && k.nextLocked() != nil {
		k.woken = true
		k.wake <- struct{}{}
	}
}

// wakeForLocked is wakeLocked for a caller that has added an operation to one queue.
func (k *link) wakeForLocked(q *sendQueue) {
	if !k.woken && k.freeLocked() && k.mayTakeLocked(q) {
		k.woken = true
		k.wake <- struct{}{}
	}
}

// send sends the frames that callers do not send themselves, until the link is over.
func (k *link) send() {
	for {
		select {
		case <-k.wake:
		case <-k.over:
			return
		}
		runtime.Gosched() // callers that are about to add an operation make the frames larger
		k.conn.mu.Lock()
		k.woken = false
		for q := k.nextLocked(); q != nil; q = k.nextLocked() {
			k.sendLocked(q)
			k.conn.mu.Lock()
		}
		k.conn.mu.Unlock()
	}
}

// sendLocked sends the next frame of a queue. It releases the lock.
func (k *link) sendLocked(q *sendQueue) {
	f := k.takeLocked(q)
	f.refs.Add(1) // its answers may come, and its callers leave, before send returns
	defer f.release()
	k.sending = true
	k.conn.mu.Unlock()
	left, err := k.carrier.send(&f.request, f.header(k.conn.client.options.Timeout))
	k.conn.mu.Lock()
	k.sending = false
	if err != nil {
		// The receiver learns why.
		if !left {
			k.torn = f
		}
		k.carrier.close()
	}
	k.conn.wakeLocked()
	k.settle()
}

// takeLocked moves the next frame of a queue to the link.
func (k *link) takeLocked(q *sendQueue) *pendingFrame {
	f := q.next()
	q.drop(f)
	q.inFlight++
	k.lastID++
	f.state, f.id, f.bytes = sent, k.lastID, f.request.Len()
	if f.timed {
		f.sentAt = time.Now()
	}
	k.frames = append(k.frames, f)
	k.bytes += f.bytes
	if f.batchKey >= writing {
		k.writes++
	}
	return f
}

// endLocked removes a frame from the link and marks it as over.
func (k *link) endLocked(f *pendingFrame, why *fault) {
	i := slices.Index(k.frames, f)
	last := len(k.frames) - 1
	k.frames[i] = k.frames[last]
	k.frames[last] = nil
	k.frames = k.frames[:last]
	k.bytes -= f.bytes
	if f.batchKey >= writing {
		k.writes--
	}
	k.conn.mu.queues[f.batchKey].inFlight--
	f.endLocked(why)
}

// receive receives answers until the carrier ends, and returns why it ended.
func (k *link) receive() error {
	for {
		r := responses.Get().(*frame.Response)
		if err := k.carrier.receive(r); err != nil {
			return err
		}
		if err := k.deliver(r); err != nil {
			return err
		}
	}
}

// deliver delivers a response to its frame. It returns an error if the response was not asked for,
// or ends the link.
func (k *link) deliver(r *frame.Response) error {
	if r.Refused {
		return &refusal{r}
	}
	k.conn.client.names.see(newest(r))
	inOrder := inOrder(r)
	k.conn.mu.Lock()
	k.received++
	f := k.frameLocked(r)
	var all bool
	var wake chan struct{}
	ok := f != nil || len(r.Results) == 0
	if f != nil {
		all, ok = f.deliver(r, inOrder)
		if all {
			k.endLocked(f, nil)
		} else {
			wake = f.roundLocked()
		}
	}
	if r.GoingAway {
		k.retired = true
		k.conn.forgetLocked(k)
	}
	k.conn.wakeLocked()
	k.settle()
	switch {
	case all:
		f.wake()
	case wake != nil:
		close(wake)
	case f == nil:
		r.Release()
		responses.Put(r)
	}
	if !ok {
		return status.Error(codes.Internal, "the server answered what was not asked")
	}
	return nil
}

// frameLocked returns the frame that a response answers, nil if there is none.
func (k *link) frameLocked(r *frame.Response) *pendingFrame {
	if len(r.Results) == 0 || !r.Compact {
		return nil
	}
	for _, f := range k.frames {
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

// end is called with the error that ended receiving.
func (k *link) end(err error) {
	k.conn.mu.Lock()
	lost := len(k.frames) > 0
	if k.silent {
		err = errSilent
	}
	k.broken = faultOfStream(err)
	k.conn.mu.links = slices.DeleteFunc(k.conn.mu.links, func(other *link) bool { return other == k })
	k.conn.forgetLocked(k)
	k.settle()
	if lost {
		k.conn.client.options.Logger.Warn("kvd: a stream ended with operations under way", "error", err)
	}
}

// settle does what is due once the link is retired or broken and no goroutine is sending. It
// releases the lock.
func (k *link) settle() {
	switch {
	case k.sending || k.broken == nil && !k.retired:
		k.conn.mu.Unlock()
	case k.broken != nil:
		lost := slices.Clone(k.frames)
		for _, f := range lost {
			why := *k.broken
			why.undone = why.undone || f == k.torn
			k.endLocked(f, &why)
		}
		k.conn.wakeLocked() // the windows have room again
		k.conn.mu.Unlock()
		wakeAll(lost)
	case len(k.frames) == 0 && !k.left:
		k.left = true
		k.conn.mu.Unlock()
		k.carrier.leave()
	default:
		k.conn.mu.Unlock()
	}
}
