package partition

import "sync/atomic"

// role is the orchestrator's work: one goroutine at a time has it, nobody waits for
// it. That is the orchestrator's own goroutine, or a caller that found nobody at
// work. Whoever has it may touch what is the orchestrator's alone.
//
// R1. A note that there may be something to do is never lost: it is either seen by
// whoever has the role, or wakes the orchestrator's goroutine.
type role struct {
	state  atomic.Uint32
	signal chan struct{} // capacity 1: wakes the orchestrator's goroutine
}

const (
	vacant uint32 = iota
	held
	noted // held, and there is something new since the last sawAll
)

func (r *role) init() { r.signal = make(chan struct{}, 1) }

// tryTake takes the role if nobody has it.
func (r *role) tryTake() bool { return r.state.CompareAndSwap(vacant, held) }

// takeOrNote takes the role; if somebody has it, it is noted that there may be
// something to do.
func (r *role) takeOrNote() bool {
	for {
		if r.tryTake() {
			return true
		}
		if r.noteIfHeld() {
			return false
		}
	}
}

// note tells whoever has the role, or the orchestrator's goroutine, that there may
// be something to do. It never blocks.
func (r *role) note() {
	if !r.noteIfHeld() {
		r.wake()
	}
}

func (r *role) noteIfHeld() bool {
	return r.state.CompareAndSwap(held, noted) || r.state.Load() == noted
}

func (r *role) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// sawAll takes back the notes so far. The caller has the role, and looks for all
// there is to do afterwards.
func (r *role) sawAll() { r.state.CompareAndSwap(noted, held) }

// leave gives the role up, unless something was noted since the last sawAll.
func (r *role) leave() bool { return r.state.CompareAndSwap(held, vacant) }

// pass gives the role up to the orchestrator's goroutine.
func (r *role) pass() {
	r.state.Store(vacant)
	r.wake()
}
