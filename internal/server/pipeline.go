package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// maxFramesInFlight bounds the frames of one pipeline that are served at the same
// time; the next one waits in the transport. The Go client keeps four.
const maxFramesInFlight = 8

// carriage is what brings the frames of a pipeline and takes its answers: a
// stream of gRPC, or a connection of raw frames.
type carriage interface {
	// receive waits for the next frame. It is called by one goroutine at a time. A
	// client that ended its side in order is io.EOF.
	receive(f *frame.Request) error
	// send sends a response, which the caller may use again afterwards. It passes the
	// caller's turn on before it waits. If it fails the carriage is broken, which
	// receive reports too; there is nobody else to tell. A client that does not take
	// what is sent for as long as a deadline is cut off. Safe for concurrent use.
	send(r *frame.Response, t *turn)
	// kill ends the carriage, whatever it waits for.
	kill(why error)
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

	workers sync.WaitGroup // those that serve frames
	watcher sync.WaitGroup // the one that ends the carriage in time

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
	p.workers.Go(p.work)
	ended := make(chan struct{})
	p.watcher.Go(func() { p.watch(ended) })
	p.workers.Wait()
	close(ended)
	p.watcher.Wait()
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
	var f frame.Request
	for p.next(&f, t) {
		p.serving.Add(1)
		p.received.Add(1)
		p.serve(&f, t)
		p.serving.Add(-1)
	}
}

// next waits for this worker's turn and then for a frame.
func (p *pipeline) next(f *frame.Request, t *turn) bool {
	t.take()
	if p.err == nil {
		p.err = p.receive(f)
	}
	return p.err == nil
}

// serve answers every operation of a frame and gives back its memory.
func (p *pipeline) serve(f *frame.Request, t *turn) {
	if !p.keepsTurn || !servedInTurn(f) {
		t.pass()
	}
	s := p.server
	s.counters.frame(len(f.Ops))
	bytes := int64(f.Bytes())
	switch {
	case p.refusing.Load():
		p.refuse(f, t, shuttingDown)
	case f.Discarded:
		p.refuse(f, t, overloaded(shedNames[shedByBytes], retryAfterShed))
	case !s.charge(bytes):
		s.counters.shed(shedByBytes)
		p.refuse(f, t, overloaded(shedNames[shedByBytes], retryAfterShed))
	default:
		defer s.counters.bytes.Add(-bytes)
		if p.serveGroups(f, t) {
			f.Abandon()
			return
		}
	}
	f.Release()
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

// watch tells the client to move when the carriage is old or idle or the server
// shuts down, and ends the carriage if the client does not.
func (p *pipeline) watch(ended <-chan struct{}) {
	life := p.server.lifetimes
	if p.waitToLeave(ended) {
		return
	}
	p.send(&frame.Response{GoingAway: true}, nil)

	patience := time.NewTimer(life.closeWait)
	defer patience.Stop()
	draining := p.server.draining.Done()
	for {
		select {
		case <-ended:
			return
		case <-draining:
			p.refusing.Store(true)
			patience.Reset(life.shutdownWait)
			draining = nil
		case <-patience.C:
			if p.serving.Load() == 0 {
				p.kill(shuttingDown)
				return
			}
			patience.Reset(life.shutdownWait)
		}
	}
}

// waitToLeave returns when the client should move: false, or true if the carriage
// ended before that.
func (p *pipeline) waitToLeave(ended <-chan struct{}) bool {
	age := time.NewTimer(p.age - p.age/10 + rand.N(p.age/5+1))
	defer age.Stop()
	var look <-chan time.Time
	if p.idle > 0 {
		ticker := time.NewTicker(max(p.idle/4, 1))
		defer ticker.Stop()
		look = ticker.C
	}
	quiet, seen := 0, p.received.Load()
	for quiet <= 4 {
		select {
		case <-ended:
			return true
		case <-age.C:
			return false
		case <-p.server.draining.Done():
			p.refusing.Store(true)
			return false
		case <-look:
			if n := p.received.Load(); n != seen || p.serving.Load() > 0 {
				quiet, seen = 0, n
			}
			quiet++
		}
	}
	return false
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
