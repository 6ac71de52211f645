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

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// maxFramesInFlight bounds the frames of one stream that are served at the same
// time; the next one waits in the transport. The Go client keeps four.
const maxFramesInFlight = 8

// Pipeline implements the method of KVService.
func (s *Server) Pipeline(stream grpc.BidiStreamingServer[kvdpb.PipelineRequest, kvdpb.PipelineResponse]) error {
	a := admissionOf(stream.Context())
	a.stall.Stop() // it may idle
	a.resize(0)    // each frame is charged for itself
	p := &pipeline{server: s, stream: stream, turn: make(chan struct{}, 1), stall: a.stall}
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
	return s.failure(methodPipeline, cmp.Or(context.Cause(stream.Context()), p.err))
}

// pipeline is one Pipeline stream.
type pipeline struct {
	server  *Server
	stream  grpc.ServerStream
	workers sync.WaitGroup // those that serve frames
	watcher sync.WaitGroup // the one that ends the stream in time

	// turn is held by the one worker that receives; it guards started and err.
	turn    chan struct{}
	started int   // workers but the first
	err     error // why receiving ended
	// waiting counts the workers that wait for their turn.
	waiting atomic.Int32

	// sending serializes responses; it guards stall, which runs during each.
	sending sync.Mutex
	stall   *time.Timer
	// serving counts the frames that are being served.
	serving atomic.Int32
	// refusing is set by a shutdown: frames that still come are refused.
	refusing atomic.Bool
}

// work receives and serves frames until the stream ends.
func (p *pipeline) work() {
	defer func() {
		if v := recover(); v != nil {
			p.kill(p.server.panicked(methodPipeline, v))
		}
	}()
	var f frame.Request
	for p.receive(&f) {
		p.serving.Add(1)
		p.serve(&f)
		p.serving.Add(-1)
	}
}

// receive waits for this worker's turn and then for a frame, and sees to it that
// somebody receives the next one.
func (p *pipeline) receive(f *frame.Request) bool {
	p.waiting.Add(1)
	<-p.turn
	p.waiting.Add(-1)
	defer func() { p.turn <- struct{}{} }()
	if p.err != nil {
		return false
	}
	if p.err = p.stream.RecvMsg(f); p.err != nil {
		return false
	}
	if p.waiting.Load() == 0 && p.started < maxFramesInFlight-1 {
		p.started++
		p.workers.Go(p.work)
	}
	return true
}

// serve answers every operation of a frame and gives back its memory.
func (p *pipeline) serve(f *frame.Request) {
	s := p.server
	s.counters.frame(len(f.Ops))
	bytes := int64(f.Bytes())
	switch {
	case p.refusing.Load():
		p.refuse(f, shuttingDown)
	case !s.charge(bytes):
		s.counters.shed(shedByBytes)
		p.refuse(f, overloaded(shedNames[shedByBytes], retryAfterShed))
	default:
		defer s.counters.bytes.Add(-bytes)
		if p.serveGroups(f) {
			f.Abandon()
			return
		}
	}
	f.Release()
}

// serveGroups serves the groups of a frame, a lone one on this goroutine. It
// reports whether the store may still use memory of the frame.
func (p *pipeline) serveGroups(f *frame.Request) (held bool) {
	groups := p.split(f)
	if len(groups) == 1 {
		return groups[0].serve()
	}
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
func (p *pipeline) refuse(f *frame.Request, why *failure) {
	var r frame.Response
	for i := range f.Ops {
		r.Results = append(r.Results, why.result(f.Ops[i].Tag))
		p.server.counters.request(methodOfKind(f.Ops[i].Kind), why.code, 1)
	}
	p.send(&r)
}

// send sends a response. If that fails the stream is broken, which the worker
// that receives learns too; there is nobody else to tell. A client that does not
// take the response for as long as a deadline is cut off.
func (p *pipeline) send(r *frame.Response) {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.stall.Reset(p.server.options.Deadline)
	_ = p.stream.SendMsg(r)
	p.stall.Stop()
}

// watch tells the client to move when the stream is old or the server shuts
// down, and ends the stream if the client does not.
func (p *pipeline) watch(ended <-chan struct{}) {
	life := p.server.lifetimes
	age := time.NewTimer(life.streamAge - life.streamAge/10 + rand.N(life.streamAge/5+1))
	defer age.Stop()
	select {
	case <-ended:
		return
	case <-age.C:
	case <-p.server.draining:
		p.refusing.Store(true)
	}
	p.send(&frame.Response{GoingAway: true})

	patience := time.NewTimer(life.closeWait)
	defer patience.Stop()
	draining := p.server.draining
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

// kill ends the stream, whatever it waits for.
func (p *pipeline) kill(why error) { admissionOf(p.stream.Context()).kill(why) }

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
