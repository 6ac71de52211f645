package commit

import "sync/atomic"

// leaderLock is the leadership of an orchestrator's members. One goroutine at a time holds it, the
// leader: the orchestrator's own goroutine, or a caller that found the lock free. No
// goroutine waits for it. The leader may touch what the Coordinators say is the leader's.
//
// R1. A note that there may be something to do is never lost: either the leader sees it,
// or it wakes the orchestrator's goroutine.
type leaderLock struct {
	state  atomic.Uint32
	signal chan struct{} // capacity 1: wakes the orchestrator's goroutine
}

const (
	vacant uint32 = iota
	held
	noted // held, and there is something new since the last sawAll
)

func (l *leaderLock) init() { l.signal = make(chan struct{}, 1) }

// tryLock makes the caller the leader if there is none.
func (l *leaderLock) tryLock() bool { return l.state.CompareAndSwap(vacant, held) }

// lockOrNote makes the caller the leader; if there is one already, it notes that there may
// be something to do.
func (l *leaderLock) lockOrNote() bool {
	for {
		if l.tryLock() {
			return true
		}
		if l.noteIfHeld() {
			return false
		}
	}
}

// note tells the leader, or else the orchestrator's goroutine, that there may be something
// to do. It never blocks.
func (l *leaderLock) note() {
	if !l.noteIfHeld() {
		l.wake()
	}
}

func (l *leaderLock) noteIfHeld() bool {
	return l.state.CompareAndSwap(held, noted) || l.state.Load() == noted
}

func (l *leaderLock) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// sawAll removes the notes so far. The caller is the leader, and looks for all there is to
// do afterwards.
func (l *leaderLock) sawAll() { l.state.CompareAndSwap(noted, held) }

// unlock ends the leadership, unless something was noted since the last sawAll.
func (l *leaderLock) unlock() bool { return l.state.CompareAndSwap(held, vacant) }

// pass ends the leadership and wakes the orchestrator's goroutine.
func (l *leaderLock) pass() {
	l.state.Store(vacant)
	l.wake()
}
