package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// stopwatch assigns the time of one call to its stages, without gap or overlap. The zero
// stopwatch belongs to a call without Stages: it does nothing and reads no clock. It is
// used by one goroutine.
type stopwatch struct {
	stages *trace.Stages
	stage  *time.Duration // the present stage of the call
	since  time.Time      // the time up to here has been assigned
}

// startWatch starts the watch of a call, in the stage Inbox.
func startWatch(s *trace.Stages) stopwatch {
	if s == nil {
		return stopwatch{}
	}
	*s = trace.Stages{}
	return stopwatch{s, &s.Inbox, time.Now()}
}

// readWatch and writeWatch start the watch of a call with these operations, all of which
// have the Stages of the first.
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

// on reports whether the caller asked for stages.
func (w *stopwatch) on() bool { return w.stages != nil }

// newTrace returns a trace for the next step, nil if the caller did not ask for stages.
func (w *stopwatch) newTrace() *trace.Batch {
	if !w.on() {
		return nil
	}
	return new(trace.Batch)
}

// waits marks that the call now waits for its turn: the stage Inbox.
func (w *stopwatch) waits() {
	if w.on() {
		w.enter(&w.stages.Inbox, time.Now())
	}
}

// works marks that the engine now works for the call: the stage Engine.
func (w *stopwatch) works() {
	if w.on() {
		w.enter(&w.stages.Engine, time.Now())
	}
}

// addTrace adds the stages that the call has passed since it began to wait; c is nil if no
// leader took it. If finished, the call is now in the stage Engine; otherwise it remains in
// the last stage that it reached.
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

// fork returns a watch for a part of the call that runs concurrently. REQUIRES: w was just
// started.
func (w *stopwatch) fork() stopwatch {
	if !w.on() {
		return stopwatch{}
	}
	s := new(trace.Stages)
	return stopwatch{s, &s.Inbox, w.since}
}

// join takes over the stages of other if that ended later. REQUIRES: both are stopped.
func (w *stopwatch) join(other *stopwatch) {
	if w.on() && other.since.After(w.since) {
		*w.stages, w.since = *other.stages, other.since
	}
}

// stop assigns the remaining time to the present stage.
func (w *stopwatch) stop() {
	if w.on() {
		w.enter(w.stage, time.Now())
	}
}

// enter assigns the time up to at to the present stage, and begins the next one.
func (w *stopwatch) enter(next *time.Duration, at time.Time) {
	*w.stage += at.Sub(w.since)
	w.stage, w.since = next, at
}
