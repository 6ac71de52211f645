package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// flight is one frame and the callers whose operations it carries, from the first operation
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
//	I2. A flight is on its lane (not sent), on one link (may have been sent), or over. It
//	    changes state under the connection's lock.
//	I3. A flight is over exactly once: when all its answers have arrived, when its link
//	    has ended, when no link could be opened, or when all its callers gave up before
//	    it was sent.
//	I4. A flight that is over does not change until its last caller has left.
type flight struct {
	conn  *conn
	class class
	born  time.Time
	refs  atomic.Int64 // see crewed
	over  atomic.Bool
	// looking is refs of the blocking callers: see lane.answered.
	looking atomic.Int64

	// Guarded by the connection's lock; the request, while it is being sent, by the
	// sender.
	request    frame.Builder
	id         uint32
	state      flightState
	led        bool // the caller of the first operation will send it
	oneVersion bool // reads at one version
	expired    bool // callers without a deadline of their own should give up
	count      int  // operations
	singles    int  // of these, those of blocking callers
	bytes      int  // of the frame, once it is sent
	given      int  // operations abandoned before the frame was sent
	timed      bool // a caller asked for timings
	left       time.Time
	patience   time.Duration
	// landed is closed and replaced when answers arrive, and closed for good when the
	// flight is over.
	landed chan struct{}

	// answers are the frames that have arrived. Usually there is one, whole, with a result
	// for each position in order. Otherwise results has them by position.
	answers []*frame.Response
	arrived []time.Time // of each, if timed
	whole   bool
	results []*frame.Result
	missing int
	fault   *fault // of those without a result, once over
}

type flightState uint8

const (
	boarding flightState = iota // on its lane
	flying                      // its frame may have been sent
	gone                        // over
)

// crewed is the part of refs that stands for callers not counted one by one while the flight is
// not over: the last step adds them all.
const crewed = 1 << 40

var (
	flights   = sync.Pool{New: func() any { return new(flight) }}
	responses = sync.Pool{New: func() any { return new(frame.Response) }}
)

func newFlight(c *conn, class class) *flight {
	f := flights.Get().(*flight)
	f.conn, f.class, f.born = c, class, time.Now()
	f.refs.Store(crewed)
	f.looking.Store(crewed)
	f.landed = make(chan struct{})
	f.request.Reset(class.kind())
	return f
}

// full reports whether another operation would exceed the limits of a frame.
func (f *flight) full(op *frame.Op) bool {
	limits := f.conn.client.options.limits(f.class)
	return f.count >= limits.Ops || f.request.Len()+op.SizeBound() > limits.Bytes
}

// enough reports whether a frame is large enough to be sent without waiting for more operations:
// half of a limit, for reads a quarter (bench/NOTES.md).
func (f *flight) enough() bool {
	limits, share := f.conn.client.options.limits(f.class), 2
	if f.class == reading {
		share = 4
	}
	return f.count >= limits.Ops/share || f.request.Len() >= limits.Bytes/share
}

// unbounded is the patience of a call without a timeout.
const unbounded time.Duration = 1<<63 - 1

// board adds an operation whose caller waits for up to patience.
func (f *flight) board(op *frame.Op, patience time.Duration) seat {
	s := seat{flight: f, place: f.count, offset: f.request.Add(op), landed: f.landed}
	f.count++
	f.patience = max(f.patience, patience)
	return s
}

// header returns the header of the frame, which holds for all its operations.
func (f *flight) header(timeout time.Duration) frame.Header {
	h := frame.Header{ID: f.id, Durability: f.class.durability(), OneVersion: f.oneVersion, Timed: f.timed}
	if timeout > 0 {
		h.TimeoutMillis = timeoutMillis(max(timeout-time.Since(f.born), 1))
	}
	return h
}

// roundLocked returns a channel that wakes all callers when it is closed, which must happen
// without the lock. Callers without an answer wait again.
func (f *flight) roundLocked() (wake chan struct{}) {
	wake, f.landed = f.landed, make(chan struct{})
	return wake
}

// land adds answers, and keeps r if it needs it. all reports whether every answer has arrived; ok
// is false if r has answers that were not asked for.
func (f *flight) land(r *frame.Response, inOrder bool) (all, ok bool) {
	if len(f.answers) == 0 {
		f.missing = f.count
	}
	f.answers = append(f.answers, r)
	if f.timed {
		f.arrived = append(f.arrived, time.Now())
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
func (f *flight) result(place int) *frame.Result {
	switch {
	case f.whole:
		return &f.answers[0].Results[place]
	case f.results != nil:
		return f.results[place]
	}
	return nil
}

// endLocked marks the flight as over; without a fault all answers have arrived. The caller then
// calls wake without the lock.
func (f *flight) endLocked(fault *fault) {
	f.state, f.fault = gone, fault
	if f.class.gathers() {
		f.conn.mu.lanes[f.class].answered++
	}
	f.conn.load(f.class).Add(-int64(f.count))
	f.over.Store(true)
}

// wake wakes all callers of a flight that is over.
func (f *flight) wake() {
	close(f.landed)
	f.looked(crewed - int64(f.singles))
	f.unref(crewed - int64(f.count))
}

func wakeAll(flights []*flight) {
	for _, f := range flights {
		f.wake()
	}
}

// leave is called once by each caller, after it has read its answer.
func (f *flight) leave() { f.unref(1) }

// looked counts blocking callers that have resumed. After the last of them the next flight may
// be sent.
func (f *flight) looked(n int64) {
	if f.class.gathers() && f.looking.Add(-n) == 0 {
		f.conn.lookedAt(f.class)
	}
}

func (f *flight) unref(n int64) {
	if f.refs.Add(-n) > 0 {
		return
	}
	for i, r := range f.answers {
		r.Release()
		responses.Put(r)
		f.answers[i] = nil
	}
	*f = flight{request: f.request, answers: f.answers[:0]}
	flights.Put(f)
}

// seat is one operation of a flight.
type seat struct {
	flight *flight
	place  int
	offset int // in the request
	landed chan struct{}
	single bool  // its caller blocks on this operation alone
	trip   *trip // nil: no timings were asked for
}

// alone marks the caller as blocking on this operation alone. It needs the lock.
func (s *seat) alone() {
	s.single = true
	s.flight.singles++
}

// leave is called once, after the caller has read the answer.
func (s *seat) leave() {
	if s.single {
		s.flight.looked(1)
	}
	s.flight.leave()
}

// take returns the answer of the operation, or false if it has not arrived. It is called with
// the lock, or when the flight is over.
func (s *seat) take(op *frame.Op) (answer, *fault, bool) {
	if s.trip != nil {
		s.note()
	}
	r := s.flight.result(s.place)
	switch {
	case r == nil && !s.flight.over.Load():
		return answer{}, nil, false
	case r == nil:
		f := *s.flight.fault
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
