package frameapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
)

// looksPerIdle is how often the watch looks within the time that a transport may idle.
const looksPerIdle = 4

// watch tells the client of a pipeline to move when the transport is old or idle or the
// server shuts down, and ends the transport if the client does not move. While it waits it
// is a timer, not a goroutine.
type watch struct {
	*Pipeline
	old     time.Time
	steps   sync.WaitGroup // those to come and under way
	undrain func() (stopped bool)

	mu struct {
		sync.Mutex
		timer *time.Timer
		due   time.Time // a step before it is ignored
		told  bool      // the client was told to move
		ended bool      // the transport has ended
		// quiet counts the looks since something came, and seen is the number of frames
		// at the last one.
		quiet int
		seen  uint64
	}
}

// watch begins to watch. The transport's end is to be told by end.
func (p *Pipeline) watch() *watch {
	w := &watch{Pipeline: p, old: time.Now().Add(p.age - p.age/10 + rand.N(p.age/5+1))}
	w.steps.Add(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := w.untilLook(time.Now())
	w.mu.due = time.Now().Add(wait)
	w.mu.timer = time.AfterFunc(wait, w.step)
	w.undrain = context.AfterFunc(p.server.Draining(), w.drain)
	return w
}

// end ends the watch. Nothing of it runs when it returns.
func (w *watch) end() {
	w.mu.Lock()
	w.mu.ended = true
	w.disarmLocked()
	w.mu.Unlock()
	if w.undrain() {
		w.steps.Done()
	}
	w.steps.Wait()
}

// untilLook is how long it is until it may be time to leave.
func (w *watch) untilLook(now time.Time) time.Duration {
	wait := w.old.Sub(now)
	if w.idle > 0 {
		wait = min(wait, max(w.idle/looksPerIdle, 1))
	}
	return wait
}

// step is what the timer does.
func (w *watch) step() {
	defer w.steps.Done()
	now := time.Now()
	w.mu.Lock()
	if w.mu.ended || now.Before(w.mu.due) {
		w.mu.Unlock()
		return
	}
	tell, kill := false, false
	switch {
	case w.mu.told && w.serving.Load() == 0:
		kill = true
	case w.mu.told:
		w.armLocked(w.server.Options().Lifetimes.ShutdownWait)
	case w.mayLeaveLocked(now):
		tell, w.mu.told = true, true
		w.armLocked(w.server.Options().Lifetimes.CloseWait)
	default:
		w.armLocked(w.untilLook(now))
	}
	w.mu.Unlock()
	if tell {
		w.tell()
	}
	if kill {
		w.transport.Kill(service.ShuttingDown)
	}
}

// mayLeaveLocked reports whether the transport is old, or has been idle.
func (w *watch) mayLeaveLocked(now time.Time) bool {
	if !now.Before(w.old) {
		return true
	}
	if n := w.received.Load(); n != w.mu.seen || w.serving.Load() > 0 {
		w.mu.quiet, w.mu.seen = 0, n
	}
	w.mu.quiet++
	return w.mu.quiet > looksPerIdle
}

// drain is what the beginning of a shutdown does.
func (w *watch) drain() {
	defer w.steps.Done()
	w.refusing.Store(true)
	w.mu.Lock()
	told := w.mu.told || w.mu.ended
	if !w.mu.ended {
		w.mu.told = true
		w.armLocked(w.server.Options().Lifetimes.ShutdownWait)
	}
	w.mu.Unlock()
	if !told {
		w.tell()
	}
}

func (w *watch) tell() { w.transport.Send(&frame.Response{GoingAway: true}, nil) }

func (w *watch) armLocked(wait time.Duration) {
	w.disarmLocked()
	w.steps.Add(1)
	w.mu.due = time.Now().Add(wait)
	w.mu.timer.Reset(wait)
}

func (w *watch) disarmLocked() {
	if w.mu.timer.Stop() {
		w.steps.Done()
	}
}
