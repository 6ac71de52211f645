package kvd

import (
	"context"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// stream is one Pipeline stream of a lane. Three parties use it: the receiver;
// the sender, which sends what no caller sends itself; and such callers. One of
// the latter two at a time holds sending.
type stream struct {
	lane   *lane
	grpc   grpc.ClientStream
	cancel context.CancelFunc
	wake   chan struct{} // has a value when the sender should look

	// Guarded by the lane's lock.
	sending    bool
	retired    bool // told to go away: takes no further frame
	halfClosed bool
	broken     *fault // the stream has ended, and why
	flying     int    // frames under way
	frames     [maxWindow]inFlight

	request frame.Request // guarded by sending
}

// inFlight is a frame under way. The tag of an operation is its frame's place
// times frame.MaxOps plus its own.
type inFlight struct {
	calls  []*call // nil where answered
	left   int     // unanswered; 0: the place is free
	unsent bool    // the frame never left
}

var pipelineStream = &grpc.StreamDesc{StreamName: "Pipeline", ClientStreams: true, ServerStreams: true}

// open opens a stream and runs it until it ends.
func (l *lane) open() {
	ctx, cancel := context.WithCancel(l.client.life)
	defer cancel()
	grpcStream, err := l.conn.NewStream(ctx, pipelineStream, kvdpb.KVService_Pipeline_FullMethodName,
		grpc.ForceCodecV2(frame.Codec()))
	l.mu.Lock()
	l.mu.opening = false
	if err != nil {
		failed := l.failQueueLocked()
		l.mu.Unlock()
		f := faultOfStream(err)
		f.undone = true
		finish(failed, f)
		return
	}
	s := &stream{lane: l, grpc: grpcStream, cancel: cancel, wake: make(chan struct{}, 1)}
	l.mu.current = s
	s.wakeLocked()
	l.mu.Unlock()

	var sender sync.WaitGroup
	sender.Go(func() { s.send(ctx) })
	s.end(s.receive())
	cancel()
	sender.Wait()
}

// mayTakeLocked reports whether a frame may be made of the queue.
func (s *stream) mayTakeLocked() bool {
	return !s.sending && !s.retired && s.broken == nil && s.flying < s.lane.client.config.batching.Window
}

// wakeLocked makes the sender look if there is something that it may send.
func (s *stream) wakeLocked() {
	if len(s.lane.mu.queue) > 0 && s.mayTakeLocked() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// send sends what callers do not send themselves, until ctx ends.
func (s *stream) send(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		runtime.Gosched() // those about to ask make the frame larger
		s.lane.mu.Lock()
		may := s.mayTakeLocked()
		s.sending = s.sending || may
		s.lane.mu.Unlock()
		if may {
			s.sendFrame()
		}
	}
}

// sendFrame makes a frame of the queue and sends it. The caller holds sending
// until it returns.
func (s *stream) sendFrame() {
	s.lane.mu.Lock()
	place, message := s.takeLocked()
	s.lane.mu.Unlock()
	var err error
	if message != nil {
		err = s.grpc.SendMsg(message)
	}
	s.lane.mu.Lock()
	s.sending = false
	if err != nil {
		// gRPC hands a message to its transport whole or not at all: on an error
		// nothing of the frame has left. Why is what the receiver learns.
		s.frames[place].unsent = true
		s.cancel()
	}
	s.wakeLocked()
	s.settle()
}

// takeLocked makes a frame of the queue and finds it a place. The message is nil
// if there is nothing to send, or if the stream ended in the meantime.
func (s *stream) takeLocked() (place int, message *frame.Encoded) {
	if s.retired || s.broken != nil {
		return 0, nil
	}
	taken := s.lane.takeLocked(&s.request)
	if len(taken) == 0 {
		return 0, nil
	}
	for s.frames[place].left > 0 {
		place++ // there is one: fewer than the window are flying
	}
	for i := range s.request.Ops {
		s.request.Ops[i].Tag = uint64(place*frame.MaxOps + i)
	}
	s.flying++
	s.frames[place] = inFlight{calls: taken, left: len(taken)}
	message = s.request.Encode()
	s.request.Release()
	return place, message
}

// receive takes answers until the stream ends, and returns why it did.
func (s *stream) receive() error {
	var r frame.Response
	defer r.Release()
	for {
		if err := s.grpc.RecvMsg(&r); err != nil {
			return err
		}
		if err := s.answer(&r); err != nil {
			return err
		}
	}
}

// answer finishes the calls that a response answers. It returns an error if the
// response has more than that.
func (s *stream) answer(r *frame.Response) (err error) {
	s.lane.client.names.see(newest(r))
	answered := make([]*call, len(r.Results))
	s.lane.mu.Lock()
	for i := range r.Results {
		c, ok := s.landLocked(r.Results[i].Tag)
		if !ok {
			err = status.Error(codes.Internal, "the server answered what was not asked")
			break
		}
		if c.state != given {
			c.state = finished
			answered[i] = c
		}
	}
	if r.GoingAway {
		s.retired = true
		s.leaveLocked()
	}
	s.wakeLocked()
	s.settle()
	for i, c := range answered {
		if c != nil {
			c.take(&r.Results[i])
			c.done <- struct{}{}
		}
	}
	return err
}

// newest returns the newest version that a response knows of.
func newest(r *frame.Response) (version uint64) {
	for i := range r.Results {
		version = max(version, r.Results[i].Version, r.Results[i].ItemVersion)
	}
	return version
}

// landLocked finds the call of a tag and takes it off its frame.
func (s *stream) landLocked(tag uint64) (*call, bool) {
	place, i := tag/frame.MaxOps, tag%frame.MaxOps
	if place >= maxWindow {
		return nil, false
	}
	f := &s.frames[place]
	if i >= uint64(len(f.calls)) || f.calls[i] == nil {
		return nil, false
	}
	c := f.calls[i]
	f.calls[i] = nil
	if f.left--; f.left == 0 {
		*f = inFlight{}
		s.flying--
	}
	return c, true
}

// take copies a result into the call.
func (c *call) take(r *frame.Result) {
	switch {
	case r.Code != 0:
		c.fault = faultOfResult(r)
	case r.Kind != c.op.Kind:
		c.fault = &fault{err: ErrInternal, message: "the server answered another kind of operation"}
	default:
		c.answer.version = r.Version
		if c.answer.found = r.Kind == frame.Get || r.HasPrevious; c.answer.found {
			c.answer.item = Item{Value: append([]byte{}, r.Value...), Version: r.ItemVersion, TTL: ttlOf(r.TTLMillis)}
		}
	}
}

// leaveLocked makes room for another stream.
func (s *stream) leaveLocked() {
	l := s.lane
	if l.mu.current == s {
		l.mu.current = nil
		if len(l.mu.queue) > 0 {
			l.openLocked()
		}
	}
}

// end is called when the stream has ended, with the error that ended it.
func (s *stream) end(err error) {
	f := faultOfStream(err)
	s.lane.mu.Lock()
	lost := s.flying > 0
	s.broken = f
	s.leaveLocked()
	s.settle()
	if lost {
		s.lane.client.config.logger.Warn("kvd: a stream ended with operations under way", "error", err)
	}
}

// settle does what is due when the stream is retired or broken and nobody sends
// any more, and gives up the lane's lock.
func (s *stream) settle() {
	if s.sending || s.broken == nil && (!s.retired || s.flying > 0 || s.halfClosed) {
		s.lane.mu.Unlock()
		return
	}
	if s.broken == nil {
		// All is answered and nothing more will be sent: the server may end the
		// stream. An error means that it has.
		s.halfClosed = true
		s.lane.mu.Unlock()
		_ = s.grpc.CloseSend()
		return
	}
	var lost, unsent []*call
	for i := range s.frames {
		f := &s.frames[i]
		for _, c := range f.calls {
			if c == nil || c.state == given {
				continue
			}
			c.state = finished
			if f.unsent {
				unsent = append(unsent, c)
			} else {
				lost = append(lost, c)
			}
		}
		*f = inFlight{}
	}
	s.flying = 0
	broken := *s.broken
	s.lane.mu.Unlock()
	finish(lost, &broken)
	undone := broken
	undone.undone = true
	finish(unsent, &undone)
}
