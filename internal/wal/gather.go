package wal

import (
	"runtime"
	"time"
)

// gathering decides how long the syncing goroutine waits after a sync for the writers
// that the sync served to append their next records. Without the wait, the first writer
// to come back starts the next sync, which then holds only its record and those that
// arrived during the last sync. Writers that each wait for their sync split into two
// halves that take turns: a sync serves half of them, and each of them waits for two
// syncs.
//
// The wait pays if the served writers come back sooner than the next sync would end. The
// log cannot know, so it tries: it waits until seven eighths of all units that wait for
// syncs wait again, but at most as long as a recent sync took. If fewer came back, the
// next syncs begin at once; the more often that happens, the more of them.
type gathering struct {
	asked   uint64 // units of records that asked for a sync, since Open
	written uint64 // of these, written
	synced  uint64 // of these, synced

	typical time.Duration // smoothed duration of recent syncs; a single long one counts little

	goal  uint64 // value of asked that the syncing goroutine waits for; 0: it does not wait
	full  signal // one value: the goal was reached
	pause int    // how many syncs began at once after the last missed goal
	skip  int    // how many of the next syncs begin at once
}

// maxGatherPause bounds how many syncs in a row begin without a wait.
const maxGatherPause = 16

// ask counts the units of a record that asks for a sync.
func (g *gathering) ask(units uint32) {
	g.asked += uint64(units)
	if g.goal > 0 && g.asked >= g.goal {
		g.goal = 0
		g.full.Wake()
	}
}

// learn records the duration of a sync.
func (g *gathering) learn(took time.Duration) {
	if g.typical == 0 {
		g.typical = took
	}
	g.typical += (min(took, 2*g.typical) - g.typical) / 8
}

// begin sets the goal after a sync that served that many units. It reports whether the
// syncing goroutine should wait for it.
func (g *gathering) begin(served uint64) bool {
	waiting := g.asked - g.synced
	all := served + waiting
	enough := all - all/8
	if served == 0 || all == 1 || waiting >= enough {
		return false
	}
	if g.skip > 0 {
		g.skip--
		return false
	}
	g.goal = g.synced + enough
	return true
}

// end ends the wait. A missed goal lengthens the pause until the next one, a reached goal
// shortens it.
func (g *gathering) end() {
	if g.goal == 0 {
		g.pause = max(g.pause-1, 0)
		return
	}
	g.goal = 0
	g.pause = min(2*g.pause+2, maxGatherPause)
	g.skip = g.pause
}

// gatherLocked waits after a sync that served that many units, if that may pay. The
// caller has the syncing role. It unlocks mu while it waits.
func (l *Log) gatherLocked(served uint64) {
	if !l.mu.gather.begin(served) {
		l.mu.Unlock()
		// Callers just woken append the next records: yield, so that the next sync serves more
		// of them.
		runtime.Gosched()
		l.mu.Lock()
		return
	}
	limit := time.NewTimer(l.mu.gather.typical)
	l.mu.Unlock()
	select {
	case <-l.mu.gather.full:
	case <-limit.C:
	case <-l.stop:
	}
	limit.Stop()
	l.mu.Lock()
	l.mu.gather.end()
	select {
	case <-l.mu.gather.full: // reached just as the limit expired
	default:
	}
}
