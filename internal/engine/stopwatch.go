package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// stopwatch gives the time of one call to its stages, each moment to one of them. The
// zero stopwatch is that of a call whose stages nobody asked for: it does nothing and
// reads no clock. It is used by one goroutine.
type stopwatch struct {
	stages *trace.Stages
	stage  *time.Duration // that the call is in
	since  time.Time      // up to which the time has been given to a stage
}

// startWatch begins a call, in the stage of waiting to be taken up.
func startWatch(s *trace.Stages) stopwatch {
	if s == nil {
		return stopwatch{}
	}
	*s = trace.Stages{}
	return stopwatch{s, &s.Inbox, time.Now()}
}

// readWatch and writeWatch begin the call of these operations.
func readWatch(reads []*kv.Lookup) stopwatch {
	if len(reads) == 0 {
		return stopwatch{}
	}
	return startWatch(reads[0].Stages)
}

func writeWatch(writes []*kv.Write) stopwatch {
	if len(writes) == 0 {
		return stopwatch{}
	}
	return startWatch(writes[0].Stages)
}

// on reports whether there is somebody to tell.
func (w *stopwatch) on() bool { return w.stages != nil }

// newTrace returns a trace for the next step, nil if the caller did not ask for stages.
func (w *stopwatch) newTrace() *trace.Batch {
	if !w.on() {
		return nil
	}
	return new(trace.Batch)
}

// waits says that from now on the call waits to be taken up.
func (w *stopwatch) waits() {
	if w.on() {
		w.enter(&w.stages.Inbox, time.Now())
	}
}

// works says that from now on the engine is at work for it.
func (w *stopwatch) works() {
	if w.on() {
		w.enter(&w.stages.Engine, time.Now())
	}
}

// addTrace adds the stages that the call passed since it waited; c is nil if no leader
// took it. If finished, the call is in the Engine stage now; otherwise it stopped in the
// last stage that it reached.
func (w *stopwatch) addTrace(c *trace.Batch, finished bool) {
	if !w.on() || c == nil {
		return
	}
	for _, step := range []struct {
		end  *trace.AtomicTime
		next *time.Duration
	}{
		{&c.Taken, &w.stages.Batch},
		{&c.Handed, &w.stages.LogWrite},
		{&c.Held, &w.stages.Sync},
		{&c.Released, &w.stages.LogWrite},
		{&c.Written, &w.stages.Sync},
		{&c.Synced, &w.stages.Engine},
	} {
		if at, passed := step.end.Get(); passed {
			w.enter(step.next, at)
		}
	}
	if finished {
		w.stage = &w.stages.Engine
	}
}

// fork returns a watch for what goes on beside. w must not have measured anything yet.
func (w *stopwatch) fork() stopwatch {
	if !w.on() {
		return stopwatch{}
	}
	s := new(trace.Stages)
	return stopwatch{s, &s.Inbox, w.since}
}

// join makes the stages those of other if it ended later. Both were stopped.
func (w *stopwatch) join(other *stopwatch) {
	if w.on() && other.since.After(w.since) {
		*w.stages, w.since = *other.stages, other.since
	}
}

// stop ends the call.
func (w *stopwatch) stop() {
	if w.on() {
		w.enter(w.stage, time.Now())
	}
}

// enter gives the time up to at to the stage that ends then.
func (w *stopwatch) enter(next *time.Duration, at time.Time) {
	*w.stage += at.Sub(w.since)
	w.stage, w.since = next, at
}
