package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
)

// maxFramesInFlight bounds the frames of one pipeline that are served at the same
// time; the next one waits in the transport. The Go client keeps four.
const maxFramesInFlight = 8

// carriage is what brings the frames of a pipeline and takes its answers: a
// stream of gRPC, or a connection of raw frames.
type carriage interface {
	// receive waits for the next frame, one of requests, which the caller gives back.
	// It is called by one goroutine at a time. A client that ended its side in order is
	// io.EOF.
	receive() (*frame.Request, error)
	// send sends a response, which the caller may use again afterwards. It passes the
	// caller's turn on before it waits. If it fails the carriage is broken, which
	// receive reports too; there is nobody else to tell. A client that does not take
	// what is sent for as long as a deadline is cut off. Safe for concurrent use.
	send(r *frame.Response, t *turn)
	// kill ends the carriage, whatever it waits for.
	kill(why error)
}

// requests lends the memory of frames: only those that are served, or that are being
// received, have some. What one frame left is of use to the next, whoever gets that.
var requests = sync.Pool{New: func() any { return new(frame.Request) }}

// giveBack gives a request back, with its memory unless that was abandoned.
func giveBack(f *frame.Request) {
	f.Release()
	requests.Put(f)
}

// pipeline serves the frames of one carriage.
type pipeline struct {
	carriage
	server *Server
	// ctx ends with the carriage.
	ctx context.Context
	// age is how long the carriage lasts before the client is told to open
	// another, ± 10 %; with idle, 0 for never, it is told so earlier, when nothing
	// has come for as long, up to a quarter more.
	age, idle time.Duration
	// keepsTurn: workers serve within their turn what they may. It is of no use where
	// sending has to pass it on.
	keepsTurn bool

	workers sync.WaitGroup // those that serve frames, but the first

	// turn has a value while no worker has its turn, which guards started and err.
	turn    chan struct{}
	started int   // workers but the first
	err     error // why receiving ended
	// waiting counts the workers that wait for their turn.
	waiting atomic.Int32

	// received counts frames; serving those that are being served.
	received atomic.Uint64
	serving  atomic.Int32
	// refusing is set by a shutdown: frames that still come are refused.
	refusing atomic.Bool
}

// run serves frames until the carriage ends, and returns why it did; nil is an end
// in order.
func (p *pipeline) run() error {
	p.turn = make(chan struct{}, 1)
	p.turn <- struct{}{}
	w := p.watch()
	p.work()
	p.workers.Wait()
	w.end()
	if errors.Is(p.err, io.EOF) {
		return nil
	}
	return cmp.Or(context.Cause(p.ctx), p.err)
}

// work receives and serves frames until the carriage ends.
func (p *pipeline) work() {
	defer func() {
		if v := recover(); v != nil {
			p.kill(p.server.panicked(methodPipeline, v))
		}
	}()
	t := &turn{pipeline: p}
	defer t.pass()
	for f := p.next(t); f != nil; f = p.next(t) {
		p.serving.Add(1)
		p.received.Add(1)
		p.serve(f, t)
		giveBack(f)
		p.serving.Add(-1)
	}
}

// next waits for this worker's turn and then for a frame. Nil: there is none any more.
func (p *pipeline) next(t *turn) (f *frame.Request) {
	t.take()
	if p.err == nil {
		f, p.err = p.receive()
	}
	return f
}

// serve answers every operation of a frame.
func (p *pipeline) serve(f *frame.Request, t *turn) {
	if !p.keepsTurn || !servedInTurn(f) {
		t.pass()
	}
	s := p.server
	s.counters.frame(len(f.Ops))
	bytes := int64(f.Bytes())
	if len(f.Ops) > 0 && f.Ops[0].Kind != frame.Get {
		bytes *= writeCopies
	}
	switch {
	case p.refusing.Load():
		p.refuse(f, t, shuttingDown)
	case f.Discarded:
		p.refuse(f, t, shedFailure(shedByBytes))
	case !s.charge(bytes):
		s.counters.shed(shedByBytes)
		p.refuse(f, t, shedFailure(shedByBytes))
	default:
		defer s.memory.Give(bytes)
		if p.serveGroups(f, t) {
			f.Abandon()
		}
	}
}

// serveGroups serves the groups of a frame, a lone one on this goroutine. It
// reports whether the store may still use memory of the frame.
func (p *pipeline) serveGroups(f *frame.Request, t *turn) (held bool) {
	var few [4]*group // most frames have one
	groups := p.split(few[:0], f, t, time.Now())
	if len(groups) == 1 {
		groups[0].turn = t
		return groups[0].serve()
	}
	t.pass()
	var all sync.WaitGroup
	var anyHeld atomic.Bool
	for _, g := range groups {
		all.Go(func() {
			if g.serve() {
				anyHeld.Store(true)
			}
		})
	}
	all.Wait()
	return anyHeld.Load()
}

// refuse answers every operation of a frame with the same failure.
func (p *pipeline) refuse(f *frame.Request, t *turn, why *failure) {
	r := frame.Response{Compact: f.Compact, ID: f.ID}
	for i := range f.Ops {
		r.Results = append(r.Results, why.result(f.Ops[i].Tag))
		p.server.counters.request(methodOfKind(f.Ops[i].Kind), why.code, 1)
	}
	if len(r.Results) > 0 {
		p.send(&r, t)
	}
}

func methodOfKind(k frame.Kind) method {
	switch k {
	case frame.Get:
		return pipelineGet
	case frame.Put:
		return pipelinePut
	case frame.Delete:
		return pipelineDelete
	}
	return methodPipeline
}
