package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// pendingFrame is one frame and the callers whose operations it has, from the first operation
// until the last caller has read its answer.
//
// Callers encode their operations into the frame themselves, so there is no queue of calls, and
// nothing to encode when the frame is sent. Answers are matched by position. When all have
// arrived, closing one channel wakes all callers, and each copies its value on its own goroutine.
// If they arrive in several frames, each frame wakes all waiting callers, and those without an
// answer wait again.
//
// Invariants:
//
//	I1. The bytes of an operation are copied when it is added, so the caller may change
//	    its arguments at once, also when it gives up.
//	I2. A frame is on its queue (not sent), on one frameConn (may have been sent), or over. It
//	    changes state under the connection's lock.
//	I3. A frame is over exactly once: when all its answers have arrived, when its frameConn
//	    has ended, when no frameConn could be opened, or when all its callers gave up before
//	    it was sent.
//	I4. A frame that is over does not change until its last caller has read its answer.
type pendingFrame struct {
	conn     *conn
	batchKey batchKey
	created  time.Time
	refs     atomic.Int64 // see openRefs
	over     atomic.Bool
	// blockingRefs is refs of the blocking callers: see sendQueue.resuming.
	blockingRefs atomic.Int64

	// Guarded by the connection's lock; the request, while it is being sent, by the
	// sender.
	request     frame.Builder
	id          uint32
	state       frameState
	led         bool // the caller of the first operation will send it
	oneVersion  bool // reads at one version
	expired     bool // callers without a deadline of their own should give up
	count       int  // operations
	blockingOps int  // of these, those of blocking callers
	bytes       int  // of the frame, once it is sent
	abandoned   int  // operations abandoned before the frame was sent
	timed       bool // a caller asked for timings
	sentAt      time.Time
	longestWait time.Duration
	// progress is closed and replaced when answers arrive, and closed for good when the
	// frame is over.
	progress chan struct{}

	// answers are the frames that have arrived. Usually there is one, whole, with a result
	// for each position in order. Otherwise results has them by position.
	answers    []*frame.Response
	receivedAt []time.Time // of each, if timed
	whole      bool
	results    []*frame.Result
	missing    int
	fault      *fault // of those without a result, once over
}

type frameState uint8

const (
	filling frameState = iota // on its queue
	sent                      // its frame may have been sent
	ended                     // over
)

// openRefs is the part of refs that stands for callers not counted one by one while the frame is
// not over: the last step adds them all.
const openRefs = 1 << 40

var (
	pendingFrames = sync.Pool{New: func() any { return new(pendingFrame) }}
	responses     = sync.Pool{New: func() any { return new(frame.Response) }}
)

func newPendingFrame(c *conn, key batchKey) *pendingFrame {
	f := pendingFrames.Get().(*pendingFrame)
	f.conn, f.batchKey, f.created = c, key, time.Now()
	f.refs.Store(openRefs)
	f.blockingRefs.Store(openRefs)
	f.progress = make(chan struct{})
	f.request.Reset(key.kind())
	return f
}

// full reports whether another operation would exceed the limits of a frame.
func (f *pendingFrame) full(op *frame.Op) bool {
	limits := f.conn.client.options.limits(f.batchKey)
	return f.count >= limits.Ops || f.request.Len()+op.SizeBound() > limits.Bytes
}

// enough reports whether a frame is large enough to be sent without waiting for more operations:
// half of a limit, for reads a quarter (bench/NOTES.md).
func (f *pendingFrame) enough() bool {
	limits, share := f.conn.client.options.limits(f.batchKey), 2
	if f.batchKey == reading {
		share = 4
	}
	return f.count >= limits.Ops/share || f.request.Len() >= limits.Bytes/share
}

// unbounded is the wait of a call without a timeout.
const unbounded time.Duration = 1<<63 - 1

// add adds an operation whose caller waits for up to wait.
func (f *pendingFrame) add(op *frame.Op, wait time.Duration) pendingOp {
	p := pendingOp{frame: f, position: f.count, offset: f.request.Add(op), progress: f.progress}
	f.count++
	f.longestWait = max(f.longestWait, wait)
	return p
}

// header returns the header of the frame, which holds for all its operations.
func (f *pendingFrame) header(timeout time.Duration) frame.Header {
	h := frame.Header{ID: f.id, Durability: f.batchKey.durability(), OneVersion: f.oneVersion, Timed: f.timed}
	if timeout > 0 {
		h.TimeoutMillis = timeoutMillis(max(timeout-time.Since(f.created), 1))
	}
	return h
}

// roundLocked returns a channel that wakes all callers when it is closed, which must happen
// without the lock. Callers without an answer wait again.
func (f *pendingFrame) roundLocked() (wake chan struct{}) {
	wake, f.progress = f.progress, make(chan struct{})
	return wake
}

// deliver adds answers, and keeps r if it needs it. all reports whether every answer has arrived; ok
// is false if r has answers that were not asked for.
func (f *pendingFrame) deliver(r *frame.Response, inOrder bool) (all, ok bool) {
	if len(f.answers) == 0 {
		f.missing = f.count
	}
	f.answers = append(f.answers, r)
	if f.timed {
		f.receivedAt = append(f.receivedAt, time.Now())
	}
	if inOrder && len(r.Results) == f.count && f.missing == f.count {
		f.whole, f.missing = true, 0
		return true, true
	}
	if f.results == nil {
		f.results = make([]*frame.Result, f.count)
	}
	for i := range r.Results {
		at := r.Results[i].Tag
		if at >= uint64(f.count) || f.results[at] != nil {
			return f.missing == 0, false
		}
		f.results[at] = &r.Results[i]
		f.missing--
	}
	return f.missing == 0, true
}

// result returns the answer at a position, nil if it has not arrived.
func (f *pendingFrame) result(position int) *frame.Result {
	switch {
	case f.whole:
		return &f.answers[0].Results[position]
	case f.results != nil:
		return f.results[position]
	}
	return nil
}

// endLocked marks the frame as over; without a fault all answers have arrived. The caller then
// calls wake without the lock.
func (f *pendingFrame) endLocked(fault *fault) {
	f.state, f.fault = ended, fault
	if f.batchKey.coalesces() {
		f.conn.mu.queues[f.batchKey].resuming++
	}
	f.conn.load(f.batchKey).Add(-int64(f.count))
	f.over.Store(true)
}

// wake wakes all callers of a frame that is over.
func (f *pendingFrame) wake() {
	close(f.progress)
	f.resumed(openRefs - int64(f.blockingOps))
	f.unref(openRefs - int64(f.count))
}

func wakeAll(frames []*pendingFrame) {
	for _, f := range frames {
		f.wake()
	}
}

// release is called once by each caller, after it has read its answer.
func (f *pendingFrame) release() { f.unref(1) }

// resumed counts blocking callers that have resumed. After the last of them the next frame may
// be sent.
func (f *pendingFrame) resumed(n int64) {
	if f.batchKey.coalesces() && f.blockingRefs.Add(-n) == 0 {
		f.conn.callersResumed(f.batchKey)
	}
}

func (f *pendingFrame) unref(n int64) {
	if f.refs.Add(-n) > 0 {
		return
	}
	for i, r := range f.answers {
		r.Release()
		responses.Put(r)
		f.answers[i] = nil
	}
	*f = pendingFrame{request: f.request, answers: f.answers[:0]}
	pendingFrames.Put(f)
}

// pendingOp is one operation of a pendingFrame.
type pendingOp struct {
	frame    *pendingFrame
	position int
	offset   int // in the request
	progress chan struct{}
	blocking bool          // its caller blocks on this operation alone
	times    *attemptTimes // nil: no timings were asked for
}

// markBlocking marks the caller as blocking on this operation alone. It needs the lock.
func (p *pendingOp) markBlocking() {
	p.blocking = true
	p.frame.blockingOps++
}

// release is called once, after the caller has read the answer.
func (p *pendingOp) release() {
	if p.blocking {
		p.frame.resumed(1)
	}
	p.frame.release()
}

// outcome returns the answer of the operation, or false if it has not arrived. It is called with
// the lock, or when the frame is over.
func (p *pendingOp) outcome(op *frame.Op) (answer, *fault, bool) {
	if p.times != nil {
		p.recordTimes()
	}
	r := p.frame.result(p.position)
	switch {
	case r == nil && !p.frame.over.Load():
		return answer{}, nil, false
	case r == nil:
		f := *p.frame.fault
		return answer{}, &f, true
	case r.Code != 0:
		return answer{Version: r.Version}, faultOfResult(r), true
	case r.Skipped || r.HasPrevious != (op.Kind == frame.Get) && !(r.HasPrevious && op.ReturnPrevious):
		return answer{}, &fault{err: backend.ErrInternal, message: "the server answered another kind of operation"}, true
	}
	a := answer{Version: r.Version, Found: r.HasPrevious}
	if a.Found {
		a.Item = backend.Item{Value: append([]byte{}, r.Value...), Version: r.ItemVersion, TTL: ttlOf(r.TTLMillis)}
	}
	return a, nil, true
}
