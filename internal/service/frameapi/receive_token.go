package frameapi

import (
	"math/rand/v2"
	"runtime"

	"github.com/kvd-db/kvd/internal/frame"
)

// ReceiveToken is one worker's view of the token of its pipeline: only the worker that
// has the token receives.
//
// The worker that has the token passes it on before anything that may wait: the disk,
// other reads, the log, a client that does not take its answers. It keeps the token for
// what does not wait, a read that memory answers. Then no other worker is woken to
// receive, and the frame is served without a change of goroutines.
//
// The zero value has no token to pass on, and neither has nil.
type ReceiveToken struct {
	pipeline *Pipeline
	held     bool
}

const (
	// tokenOps is the most operations of a frame that is served with the token: some
	// 50 us. With more operations the cost of waking another worker matters less, and
	// that the next frame can be served meanwhile matters more.
	tokenOps = 64
	// tokenBytes bounds the values that are copied with the token. Guessed: they take
	// about as long as the operations.
	tokenBytes = 64 << 10
)

// take waits for the token, unless the worker kept it.
func (t *ReceiveToken) take() {
	if !t.held {
		p := t.pipeline
		p.waiting.Add(1)
		<-p.token
		p.waiting.Add(-1)
		t.held = true
	}
}

// Pass gives the token, if it is held, to another worker, which it starts if none
// waits.
func (t *ReceiveToken) Pass() {
	if !t.kept() {
		return
	}
	p := t.pipeline
	if p.err == nil && p.waiting.Load() == 0 && p.started < maxFramesInFlight-1 {
		p.started++
		p.workers.Go(p.work)
	}
	t.held = false
	p.token <- struct{}{}
}

// kept reports whether the token is still held.
func (t *ReceiveToken) kept() bool { return t != nil && t.held }

// mayKeepToken reports whether a frame may be served with the token, as far as its head
// tells.
func mayKeepToken(f *frame.Request) bool {
	n := len(f.Ops)
	return 0 < n && n <= tokenOps && f.Ops[0].Kind == frame.Get
}

// yieldEvery is how many operations are served between two yields of the processor, on
// average, while frames follow each other without a pause: as many as keys in the engine.
const yieldEvery = 16

// yield lets other goroutines have the processor now and then. It is for a worker that
// found the next frame without waiting: if it kept the token, it may not have let go of
// the processor since the frame before.
func yield(ops int) {
	if rand.Uint32()%yieldEvery < uint32(ops) {
		runtime.Gosched()
	}
}
