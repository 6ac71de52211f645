package frameapi

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	// maxCallWorkers bounds the calls of one frame that are performed at the same time; the
	// others wait for these. Guessed: what the Go client has in a frame.
	maxCallWorkers = 256
	// callWorkerBytes is what a call occupies beside its messages: the stack of a goroutine.
	callWorkerBytes = 8 << 10
)

// calls are the calls of one frame, each of which is performed by itself: a slow one delays no
// other. Calls that are done at about the same time, as commits that one sync makes durable, are
// answered together.
type calls struct {
	pipeline *Pipeline
	request  *frame.Request
	caller   service.Caller
	begun    time.Time
	held     int64 // of the server's memory, by all of them
	// shared is the context of the calls that have the timeout of the first one, which most have:
	// so they share one timer.
	shared  *lazyDeadline
	timeout time.Duration // of shared

	mu struct {
		sync.Mutex
		done    []frame.Result // in no order, to be sent
		sending bool           // a goroutine sends what is done
	}
}

// callBytes returns what a frame of calls occupies beside its bytes.
func callBytes(f *frame.Request) int64 {
	return int64(min(len(f.Ops), maxCallWorkers)) * callWorkerBytes
}

// serveCalls answers the calls of a frame: a lone call, and those that do not wait for the disk,
// on this goroutine. The store keeps no memory of the frame, since a decoded message has a copy.
func (p *Pipeline) serveCalls(f *frame.Request, t *ReceiveToken, caller service.Caller, begun time.Time, held int64) {
	t.Pass()
	c := &calls{pipeline: p, request: f, caller: caller, begun: begun, held: held, timeout: p.timeoutOf(&f.Ops[0])}
	c.shared = newLazyDeadline(p.ctx, begun.Add(c.timeout))
	defer c.shared.end()
	var waiting []*frame.Op
	for i := range f.Ops {
		switch op := &f.Ops[i]; {
		case op.Skipped:
			c.mu.done = append(c.mu.done, frame.Result{Tag: op.Tag, Skipped: true})
		case op.Method >= frame.MethodBeginSnapshot:
			c.mu.done = append(c.mu.done, c.perform(op))
		default:
			waiting = append(waiting, op)
		}
	}
	switch len(waiting) {
	case 0:
	case 1:
		c.mu.done = append(c.mu.done, c.perform(waiting[0]))
	default:
		c.performAll(waiting)
	}
	c.flush()
}

// timeoutOf returns how long a call may take.
func (p *Pipeline) timeoutOf(op *frame.Op) time.Duration {
	timeout := time.Duration(op.TimeoutMillis) * time.Millisecond
	if timeout == 0 {
		timeout = p.server.Options().Deadline
	}
	return min(timeout, p.server.MaxDeadline())
}

// performAll performs calls that may wait, and answers each soon after it is done.
func (c *calls) performAll(ops []*frame.Op) {
	inTurn(ops, maxCallWorkers, func(op *frame.Op) { c.answer(c.perform(op)) })
}

// inTurn calls do for each of all, in their order, on at most so many goroutines, and waits for them.
func inTurn[T any](all []T, workers int, do func(T)) {
	var running sync.WaitGroup
	var next atomic.Int64
	for range min(len(all), workers) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				do(all[i])
			}
		})
	}
	running.Wait()
}

// answer sends an answer, with others that are done at about the same time.
func (c *calls) answer(r frame.Result) {
	c.mu.Lock()
	c.mu.done = append(c.mu.done, r)
	sends := !c.mu.sending
	c.mu.sending = true
	c.mu.Unlock()
	if !sends {
		return
	}
	for {
		runtime.Gosched() // calls that are about to end have their answers sent, too
		c.flush()
		c.mu.Lock()
		if len(c.mu.done) == 0 {
			c.mu.sending = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// flush sends what is done.
func (c *calls) flush() {
	c.mu.Lock()
	results := c.mu.done
	c.mu.done = nil
	c.mu.Unlock()
	if len(results) == 0 {
		return
	}
	slices.SortFunc(results, func(a, b frame.Result) int { return int(a.Tag) - int(b.Tag) })
	c.pipeline.transport.Send(&frame.Response{Compact: true, ID: c.request.ID, Results: results}, nil)
}

// perform performs one call and returns its answer. A panic fails this call alone.
func (c *calls) perform(op *frame.Op) (r frame.Result) {
	p := c.pipeline
	s, m := p.server, p.methodCalls[op.Method]
	defer func() {
		if v := recover(); v != nil {
			r = failedCall(s.Panicked(m, v), op.Tag)
		}
	}()
	ctx := c.shared
	if timeout := p.timeoutOf(op); timeout != c.timeout {
		ctx = newLazyDeadline(p.ctx, c.begun.Add(timeout))
		defer ctx.end()
	}
	call := service.Call{Begun: c.begun, Caller: c.caller}
	call.Method = m.String()
	call.Budget.Charge(s.Memory())
	defer call.Budget.Return()
	request, answer, err := c.ask(ctx, op, &call, m)
	if err == nil {
		r, err = doneCall(answer, request, &call, op.Tag)
	}
	s.Settle(&call, len(r.Value))
	code := service.OK
	if err != nil {
		why := s.Failure(m, err)
		code, r = why.Code, failedCall(why, op.Tag)
	}
	m.Count(code, 1)
	if call.Store() > 0 {
		s.Finish(p.conn, m, code, &call, func() service.Load { return messages.LoadOf(request) })
	}
	return r
}

// ask has the server perform a call.
func (c *calls) ask(ctx context.Context, op *frame.Op, call *service.Call, m *service.Method) (request, answer proto.Message, err error) {
	s, conn := c.pipeline.server, c.pipeline.conn
	defer s.Recover(m, &err)
	request = requestOf(op.Method)
	if err := ctx.Err(); err != nil {
		return request, nil, err
	}
	if conn != nil {
		if !conn.EnterCall() {
			return request, nil, s.Shed(service.ShedByStreams)
		}
		defer conn.LeaveCall()
	}
	reserved := int64(0)
	defer func() { s.Memory().Give(reserved) }()
	err = messages.Decode(s, call, op.Value, request, func(bytes int64) error {
		call.Held = c.held / int64(len(c.request.Ops))
		if err := s.Memory().Wait(ctx, bytes, call.Held); err != nil {
			return s.NoMemory(err)
		}
		reserved = bytes
		call.Held += bytes
		// Others of the frame may have come first, and memory later.
		return s.Authorize(&call.Caller, c.pipeline.session, service.ByKey, time.Now())
	})
	if err != nil {
		return request, nil, err
	}
	switch r := request.(type) {
	case *kvdpb.WriteRequest:
		if !r.Atomic {
			return request, nil, service.Invalidf("a call in a frame writes a batch that is atomic; single writes have frames of their own")
		}
		meta, err := messages.Apply(ctx, s, call, r.Mutations, r.Options)
		return request, &kvdpb.WriteResponse{Meta: meta}, err
	case *kvdpb.CommitRequest:
		answer, err = messages.Commit(ctx, s, call, r)
	case *kvdpb.ExecuteRequest:
		answer, err = messages.Execute(ctx, s, call, r)
	case *kvdpb.BeginSnapshotRequest:
		answer, err = messages.BeginSnapshot(ctx, s, conn, call, r)
	case *kvdpb.KeepSnapshotRequest:
		answer, err = messages.KeepSnapshot(s, conn, r)
	case *kvdpb.ReleaseSnapshotRequest:
		answer = messages.ReleaseSnapshot(s, r)
	}
	return request, answer, err
}

func requestOf(m frame.Method) proto.Message {
	switch m {
	case frame.MethodWrite:
		return new(kvdpb.WriteRequest)
	case frame.MethodCommit:
		return new(kvdpb.CommitRequest)
	case frame.MethodExecute:
		return new(kvdpb.ExecuteRequest)
	case frame.MethodBeginSnapshot:
		return new(kvdpb.BeginSnapshotRequest)
	case frame.MethodKeepSnapshot:
		return new(kvdpb.KeepSnapshotRequest)
	}
	return new(kvdpb.ReleaseSnapshotRequest)
}

// doneCall returns the answer of a call that has succeeded, with timings if the request asked.
func doneCall(answer, request proto.Message, call *service.Call, tag uint64) (frame.Result, error) {
	r := frame.Result{Tag: tag, HasPrevious: true}
	switch a := answer.(type) {
	case interface{ GetMeta() *kvdpb.ResponseMeta }:
		r.Version = a.GetMeta().GetVersion()
		asked, ok := request.(interface{ GetOptions() *kvdpb.RequestOptions })
		if ok && asked.GetOptions().GetWantTimings() {
			times := call.Times(time.Since(call.Begun))
			a.GetMeta().Timings = messages.TimingsOf(&times)
		}
	case *kvdpb.BeginSnapshotResponse:
		r.Version = a.GetVersion()
	}
	var err error
	r.Value, err = proto.Marshal(answer)
	return r, err
}

// failedCall returns an error as the answer of a call: unlike that of an operation it has the
// figures that gRPC has in an ErrorInfo.
func failedCall(e *service.Error, tag uint64) frame.Result {
	r := resultOf(e, tag)
	for name, value := range messages.MetadataOf(e) {
		r.Details = append(r.Details, frame.Detail{Name: name, Value: value})
	}
	slices.SortFunc(r.Details, func(a, b frame.Detail) int { return strings.Compare(a.Name, b.Name) })
	return r
}
