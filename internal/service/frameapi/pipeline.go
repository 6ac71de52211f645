package frameapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// maxFramesInFlight bounds the frames of one pipeline that are served at the same
// time; the next one waits in the transport. The Go client keeps four.
const maxFramesInFlight = 8

// Transport brings the frames of a pipeline and takes its answers: a connection of raw
// frames, or a stream of gRPC.
type Transport interface {
	// Receive waits for the next frame, one of NewRequest, which the caller gives to Free.
	// It is called by one goroutine at a time. A client that ended its side in order is
	// io.EOF.
	Receive() (*frame.Request, error)
	// Send sends a response, which the caller may use again afterwards. It passes the
	// caller's token on before it waits. If it fails the transport is broken, which
	// Receive reports too. A client that does not take what is sent for as long as a
	// deadline is cut off. Safe for concurrent use.
	Send(r *frame.Response, t *ReceiveToken)
	// Kill ends the transport, whatever it waits for.
	Kill(why error)
}

// requests lends the memory of frames to those that are being received or served.
var requests = sync.Pool{New: func() any { return new(frame.Request) }}

// NewRequest returns a request to receive a frame into. Its owner gives it to Free.
func NewRequest() *frame.Request { return requests.Get().(*frame.Request) }

// Free ends the use of a request and of its memory, unless that was abandoned.
func Free(f *frame.Request) {
	f.Release()
	f.Room = nil // the next one may be another server's
	requests.Put(f)
}

// Pipeline serves the frames of one transport.
type Pipeline struct {
	transport Transport
	*frames
	conn    *service.Conn // may be nil in tests
	session *auth.Session
	// ctx ends with the transport.
	ctx context.Context
	// age is how long the transport lasts before the client is told to open
	// another, ± 10 %; with idle, 0 for never, it is told so earlier, when nothing
	// has come for as long, up to a quarter more.
	age, idle time.Duration
	// calls: the client may send frames of calls, as it can only on a connection of its own.
	calls bool
	// keepsToken: workers keep the token while they serve what does not wait. It is of no
	// use where sending has to pass it on.
	keepsToken bool

	workers sync.WaitGroup // those that serve frames, but the first

	// token has a value while no worker has the token, which guards started and err.
	token   chan struct{}
	started int   // workers but the first
	err     error // why receiving ended
	// waiting counts the workers that wait for the token.
	waiting atomic.Int32

	// received counts frames; serving those that are being served.
	received atomic.Uint64
	serving  atomic.Int32
	// refusing is set by a shutdown: frames that still come are refused.
	refusing atomic.Bool
}

// Serving reports whether frames are being served.
func (p *Pipeline) Serving() bool { return p.serving.Load() > 0 }

// Run serves frames until the transport ends, and returns why it did; nil is an end
// in order.
func (p *Pipeline) Run() error {
	p.token = make(chan struct{}, 1)
	p.token <- struct{}{}
	w := p.watch()
	p.work()
	p.workers.Wait()
	w.end()
	if errors.Is(p.err, io.EOF) {
		return nil
	}
	return cmp.Or(context.Cause(p.ctx), p.err)
}

// work receives and serves frames until the transport ends.
func (p *Pipeline) work() {
	defer func() {
		if v := recover(); v != nil {
			p.transport.Kill(p.server.Panicked(p.methodPipeline, v))
		}
	}()
	t := &ReceiveToken{pipeline: p}
	defer t.Pass()
	for f := p.next(t); f != nil; f = p.next(t) {
		p.serving.Add(1)
		p.received.Add(1)
		p.serve(f, t)
		Free(f)
		p.serving.Add(-1)
	}
}

// next waits for the token and then for a frame. Nil: there is none any more.
func (p *Pipeline) next(t *ReceiveToken) (f *frame.Request) {
	t.take()
	if p.err == nil {
		f, p.err = p.transport.Receive()
	}
	return f
}

// opBytes is what an operation of a frame occupies beside its key and value, until it is answered:
// decoded, in the call of the store with the pointers to it, and as a result. A pooled batch has
// memory for reads and for writes.
var opBytes = int64(reflect.TypeFor[frame.Op]().Size() + reflect.TypeFor[frame.Result]().Size() +
	reflect.TypeFor[kv.Lookup]().Size() + reflect.TypeFor[kv.Write]().Size() + 3*reflect.TypeFor[*int]().Size())

// readsAlone reports whether all operations of a frame are reads. Those of a message of operations may be of
// any kinds, in any order.
func readsAlone(f *frame.Request) bool {
	for i := range f.Ops { // a copy of each would cost more than the rest
		if f.Ops[i].Kind != frame.Get {
			return false
		}
	}
	return true
}

// serve answers every operation of a frame.
func (p *Pipeline) serve(f *frame.Request, t *ReceiveToken) {
	s := p.server
	s.CountFrame(f.Count())
	begun := time.Now()
	caller := service.Caller{Conn: p.conn, Method: p.methodPipeline.String()}
	unknown := s.Authorize(&caller, p.session, service.ByKey, begun)
	full := s.Admit(&caller)
	decoded := int64(0)
	if f.Discarded == 0 {
		decoded = opBytes * int64(len(f.Ops))
	}
	if f.Room == nil { // else that has added it
		s.Memory().Add(decoded)
	}
	defer s.Memory().Give(decoded)
	bytes := int64(f.Bytes())
	hasCalls := len(f.Ops) > 0 && f.Ops[0].Kind == frame.Call
	if !readsAlone(f) {
		bytes *= service.WriteCopies
	}
	if hasCalls {
		bytes += int64(f.Bytes()) + callBytes(f) // a decoded message is one more copy
	} else if f.Discarded == 0 {
		bytes += batchBytes(f)
	}
	// A frame that is refused keeps the token, so that no other one is decoded meanwhile.
	held := f.Held
	room := f.Discarded == 0 && s.Memory().Take(bytes-held, decoded+held)
	if !room {
		defer s.Memory().Give(held)
	} else {
		defer s.Memory().Give(bytes)
		if !p.keepsToken || !mayKeepToken(f) {
			t.Pass()
		}
	}
	switch {
	case hasCalls && !p.calls:
		p.transport.Kill(Malformed(fmt.Errorf("%w: calls, which need version %d on a connection of their own", frame.ErrMalformed, frame.VersionCalls)))
	case unknown != nil:
		// It is judged anew for each frame: a token may have been revoked.
		why := s.Failure(p.methodPipeline, unknown)
		p.refuse(f, t, why)
		p.transport.Kill(why)
	case full != nil:
		p.refuse(f, t, s.Failure(p.methodPipeline, full))
	case p.refusing.Load():
		p.refuse(f, t, service.ShuttingDown)
	case f.Discarded > 0:
		p.refuse(f, t, service.ShedError(service.ShedByBytes))
	case !room:
		p.refuse(f, t, s.Shed(service.ShedByBytes))
	default:
		if hasCalls {
			p.serveCalls(f, t, caller, begun, bytes)
			return
		}
		if p.serveBatches(f, t, caller, begun) {
			f.Abandon()
		}
	}
}

// serveBatches serves the batches of a frame: a lone one on this goroutine, several on workers
// that take them in turn. It reports whether the store may still use memory of the frame.
func (p *Pipeline) serveBatches(f *frame.Request, t *ReceiveToken, caller service.Caller, begun time.Time) (held bool) {
	var few [4]*batch // most frames have one
	batches := p.split(few[:0], f, t, caller, begun)
	if len(batches) == 1 {
		batches[0].token = t
		return batches[0].serve()
	}
	t.Pass()
	if len(batches) > maxBatchWorkers { // the last ones, of reads at a version, wait
		slices.SortStableFunc(batches, func(a, b *batch) int { return cmp.Compare(min(a.key.at, 1), min(b.key.at, 1)) })
	}
	var anyHeld atomic.Bool
	inTurn(batches, maxBatchWorkers, func(b *batch) {
		if b.serve() {
			anyHeld.Store(true)
		}
	})
	return anyHeld.Load()
}

// refusedAtOnce is how many operations one response refuses: few, since memory may be short.
const refusedAtOnce = 128

// refuse answers every operation of a frame with the same failure.
func (p *Pipeline) refuse(f *frame.Request, t *ReceiveToken, why *service.Error) {
	r := frame.Response{Compact: f.Compact, ID: f.ID}
	for i := range f.Count() {
		op, tag := &f.Ops[0], uint64(i)
		if f.Discarded == 0 {
			op = &f.Ops[i]
			tag = op.Tag
		}
		p.methodOf(op).Count(why.Code, 1)
		r.Results = append(r.Results, resultOf(why, tag))
		if len(r.Results) == refusedAtOnce || i == f.Count()-1 {
			p.transport.Send(&r, t)
			r.Results = r.Results[:0]
		}
	}
}
