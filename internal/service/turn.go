package service

import (
	"math/rand/v2"
	"runtime"

	"github.com/kvd-db/kvd/internal/frame"
)

// turn is what one worker of a pipeline has of its one turn to receive.
//
// Whoever has the turn passes it on before anything that may wait: the disk, other
// reads, a log, a client that does not take its answers. What does not wait, a read
// that memory answers, is done within it, so that nobody is woken only to receive:
// a frame then costs no change of goroutines at all.
//
// The zero value is that of somebody who has no turn to pass on, and so is nil.
type turn struct {
	pipeline *pipeline
	held     bool
}

const (
	// turnOps is the most operations of a frame that is served within the turn: some
	// 50 us. With more it is of little weight that another worker is woken, and of more
	// that he can serve what comes behind it.
	turnOps = 64
	// turnBytes bounds the values that are copied within the turn. Guessed: they take
	// about as long as the operations.
	turnBytes = 64 << 10
)

// take waits for the turn, unless the worker kept it.
func (t *turn) take() {
	if !t.held {
		p := t.pipeline
		p.waiting.Add(1)
		<-p.turn
		p.waiting.Add(-1)
		t.held = true
	}
}

// pass gives the turn, if it is held, to another worker, and sees to it that there
// is one.
func (t *turn) pass() {
	if !t.kept() {
		return
	}
	p := t.pipeline
	if p.err == nil && p.waiting.Load() == 0 && p.started < maxFramesInFlight-1 {
		p.started++
		p.workers.Go(p.work)
	}
	t.held = false
	p.turn <- struct{}{}
}

// kept reports whether the turn is held still.
func (t *turn) kept() bool { return t != nil && t.held }

// servedInTurn reports whether a frame may be served within the turn, as far as its
// head tells.
func servedInTurn(f *frame.Request) bool {
	n := len(f.Ops)
	return 0 < n && n <= turnOps && f.Ops[0].Kind == frame.Get
}

// yieldEvery is how many operations are served between two yields of the processor, on
// average, while frames come one behind the other: as many as keys in the engine.
const yieldEvery = 16

// yield lets other goroutines have the processor now and then. It is for a worker that
// has found the next frame without waiting: if it kept its turn, nothing that it did
// before need have let go of the processor.
func yield(ops int) {
	if rand.Uint32()%yieldEvery < uint32(ops) {
		runtime.Gosched()
	}
}
