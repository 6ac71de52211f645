package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// pendingFrame is one frame and its callers, from the first operation until the last caller has
// read its answer.
//
// Each caller encodes its operation into the frame, so there is no queue of calls and nothing to
// encode when the frame is sent. Answers are matched by position. When all have arrived, closing
// one channel wakes all callers, and each copies its value on its own goroutine. If the answers
// arrive in several frames, each of these wakes all callers, and those without an answer wait
// again. The server answers calls one by one, so each caller of a call has a channel of its own.
//
// Invariants:
//
//	I1. Adding an operation copies its bytes, so the caller may change its arguments as soon
//	    as the call returns, also when it gave up.
//	I2. A frame is filling (on its queue, not sent), sent (on one frameConn; it may have
//	    reached the server) or ended. It changes state under conn.mu.
//	I3. A frame ends exactly once: when all its answers have arrived, when its frameConn has
//	    ended, when no frameConn could be opened, or when all its callers gave up before it
//	    was sent.
//	I4. A frame that has ended does not change until its last caller has read its answer.
type pendingFrame struct {
	conn     *conn
	batchKey batchKey
	created  time.Time
	refs     atomic.Int64 // see openRefs
	over     atomic.Bool
	// blockingRefs is refs of the blocking callers: see sendQueue.resuming.
	blockingRefs atomic.Int64

	// Guarded by conn.mu. While the frame is being sent, the goroutine that sends it owns the
	// request.
	request     frame.Builder
	id          uint32
	state       frameState
	led         bool // the caller of the first operation sends it
	oneVersion  bool // reads at one version, which the server chooses
	most        int  // bytes of values that are kept; 0: all
	expired     bool // callers without a deadline of their own should give up
	count       int  // operations
	blockingOps int  // of these, those of blocking callers
	unawaited   int  // of these, those for which no caller waits
	bytes       int  // of the request, once it is sent
	abandoned   int  // operations abandoned before the frame was sent
	timed       bool // a caller asked for timings
	sentAt      time.Time
	via         *frameConn // once it is sent
	epoch       uint64     // of via when it was sent; 0: not known then
	longestWait time.Duration
	// progress is closed and replaced when some answers arrive, and closed for good when the
	// frame has ended.
	progress chan struct{}
	// progressOf replaces progress in a frame of calls: it has a channel for each, which gets a
	// value when its caller should look for its answer. The frame is used again, the channels are
	// not: in a test with synctest they belong to its bubble.
	progressOf []chan struct{}
	// answered: some answers of a frame of calls have arrived, and the next frame may be sent.
	answered bool

	// answers are the responses that have arrived. Usually there is one, which is whole: it has
	// the result of each position, in order. Otherwise results has them by position.
	answers    []*frame.Response
	kept       int         // bytes of values in answers, if most is set
	receivedAt []time.Time // of each, if timed
	whole      bool
	results    []*frame.Result
	missing    int
	fault      *fault // of the operations without a result, once ended
}

// frameState is explained in I2 of pendingFrame.
type frameState uint8

const (
	filling frameState = iota
	sent
	ended
)

// openRefs is part of refs until the frame ends. It stands for callers that have not been counted
// yet: wake replaces it by their number.
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

// full reports whether op would exceed the limits of the frame.
func (f *pendingFrame) full(op *frame.Op) bool {
	limits := f.conn.client.options.limits(f.batchKey)
	return f.count >= limits.Ops || f.request.Len()+op.SizeBound() > limits.Bytes
}

// ofOneCaller reports whether a single caller waits for all of the frame.
func (f *pendingFrame) ofOneCaller() bool { return f.count == 1 || f.batchKey == together }

// enough reports whether the frame is large enough to be sent without waiting for more operations:
// at half of a limit, for reads at a quarter (bench/NOTES.md).
func (f *pendingFrame) enough() bool {
	limits, share := f.conn.client.options.limits(f.batchKey), 2
	if f.batchKey == reading {
		share = 4
	}
	return f.count >= limits.Ops/share || f.request.Len() >= limits.Bytes/share
}

// unbounded is the longest wait of a call without a timeout.
const unbounded time.Duration = 1<<63 - 1

// add adds an operation whose caller waits at most for wait.
func (f *pendingFrame) add(op *frame.Op, wait time.Duration) pendingOp {
	p := pendingOp{frame: f, position: f.count, offset: f.request.Add(op)}
	if f.batchKey.calls() {
		f.progressOf = append(f.progressOf, make(chan struct{}, 1))
	}
	p.progress = f.progressAt(p.position)
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

// progressAt returns what the caller of an operation waits for next.
func (f *pendingFrame) progressAt(position int) chan struct{} {
	if f.batchKey.calls() {
		return f.progressOf[position]
	}
	return f.progress
}

// tell wakes the caller of a call.
func (f *pendingFrame) tell(position int) {
	select {
	case f.progressOf[position] <- struct{}{}:
	default: // it will look
	}
}

// roundLocked returns a channel. The caller closes it without the lock, which wakes all callers of
// the frame; those without an answer wait again.
func (f *pendingFrame) roundLocked() (wake chan struct{}) {
	if f.batchKey.calls() {
		for i := range f.count {
			f.tell(i)
		}
	}
	wake, f.progress = f.progress, make(chan struct{})
	return wake
}

// tooMany is the answer of an operation whose value was dropped: see pendingFrame.most.
var tooMany = frame.Result{Code: int32(codes.InvalidArgument), Reason: kvdpb.ReasonTooLarge, Message: "the answer is too large"}

// drops reports whether the values of further responses are dropped.
func (f *pendingFrame) drops() bool { return f.most > 0 && f.kept > f.most }

// drop has the operations that r answers refused, and does not keep r. It returns what deliver does.
func (f *pendingFrame) drop(r *frame.Response) (all, ok bool) {
	for i := range r.Results {
		at := r.Results[i].Tag
		if at >= uint64(f.count) || f.results[at] != nil {
			return f.missing == 0, false
		}
		f.results[at] = &tooMany
		f.missing--
	}
	return f.missing == 0, true
}

// deliver adds the answers of r, and keeps r. all reports whether every answer has arrived; ok is
// false if r has answers that were not asked for.
func (f *pendingFrame) deliver(r *frame.Response, inOrder bool) (all, ok bool) {
	if len(f.answers) == 0 {
		f.missing = f.count
	}
	f.answers = append(f.answers, r)
	if f.most > 0 {
		for i := range r.Results {
			f.kept += len(r.Results[i].Value)
		}
	}
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

// endLocked marks the frame as ended; without a fault all answers have arrived, or all callers gave
// up. The caller then calls wake, without the lock.
func (f *pendingFrame) endLocked(fault *fault) {
	f.state, f.fault = ended, fault
	f.conn.client.releasing.Add(-f.unawaited)
	if f.batchKey.coalesces() {
		f.conn.mu.queues[f.batchKey].resuming++
	}
	f.conn.load(f.batchKey).Add(-int64(f.count))
	f.over.Store(true)
}

// wake wakes all callers of a frame that has ended. It takes the lock.
func (f *pendingFrame) wake() {
	close(f.progress)
	if f.batchKey.calls() {
		for i := range f.count {
			f.tell(i)
		}
	}
	f.resumed(openRefs - int64(f.blockingOps))
	f.unref(openRefs - int64(f.count))
}

func wakeAll(frames []*pendingFrame) {
	for _, f := range frames {
		f.wake()
	}
}

// release is called once for each operation, after its caller has read the answer.
func (f *pendingFrame) release() { f.unref(1) }

// resumed counts blocking callers that have resumed. After the last one the next frame may be sent.
// It takes the lock.
func (f *pendingFrame) resumed(n int64) {
	if f.batchKey.coalesces() && f.blockingRefs.Add(-n) == 0 {
		f.conn.callersResumed(f.batchKey)
	}
}

// unref drops n references. After the last one the frame is reused.
func (f *pendingFrame) unref(n int64) {
	if f.refs.Add(-n) > 0 {
		return
	}
	for i, r := range f.answers {
		r.Release()
		responses.Put(r)
		f.answers[i] = nil
	}
	clear(f.progressOf)
	*f = pendingFrame{request: f.request, answers: f.answers[:0], progressOf: f.progressOf[:0]}
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
	via      *frameConn    // that brought the answer; nil: there is none
}

// markBlocking records that the caller blocks on this operation alone. It needs the lock.
func (p *pendingOp) markBlocking() {
	p.blocking = true
	p.frame.blockingOps++
}

// release is called once, after the caller has read the answer. It takes the lock.
func (p *pendingOp) release() {
	if p.blocking {
		p.frame.resumed(1)
	}
	p.frame.release()
}

// outcome returns the answer of the operation, or false if it has not arrived. The caller holds the
// lock, unless the frame has ended.
func (p *pendingOp) outcome(op *frame.Op) (answer, *fault, bool) {
	if p.times != nil {
		p.recordTimes()
	}
	r := p.frame.result(p.position)
	if r != nil {
		p.via = p.frame.via
	}
	switch {
	case r == nil && !p.frame.over.Load():
		return answer{}, nil, false
	case r == nil:
		f := *p.frame.fault
		return answer{}, &f, true
	case r.Code != 0:
		return answer{Version: r.Version, Epoch: p.frame.epoch}, faultOfResult(r), true
	case r.Skipped || r.HasPrevious != (op.Kind == frame.Get || op.Kind == frame.Call) && !(r.HasPrevious && op.ReturnPrevious):
		return answer{}, &fault{err: backend.ErrInternal, message: "the server answered another kind of operation"}, true
	}
	a := answer{Version: r.Version, Epoch: p.frame.epoch, Found: r.HasPrevious}
	if a.Found {
		a.Value = backend.Value{Bytes: append([]byte{}, r.Value...), Version: r.ItemVersion, TTL: ttlOf(r.TTLMillis)}
	}
	return a, nil, true
}
