package wal

import (
	"runtime"
	"time"
)

// gathering is how the syncing goroutine waits, after a sync, for those whom the sync
// served to bring their next records. Without that, who comes first begins the next
// sync together with those that came during the last one only, and writers that each
// wait for their sync end as two crowds that take turns: a sync serves half of them,
// and each of them waits for two.
//
// It pays if those served come back sooner than the next sync would end. Nobody
// tells, so it is tried: until seven eighths of all that wait for syncs wait again,
// and for as long as syncs take. If fewer came, the next syncs begin at once, and the
// more of them the more often that happened.
type gathering struct {
	asked   uint64 // units that were to be synced, since Open
	written uint64 // of these, written
	synced  uint64 // of these, synced

	typical time.Duration // how long syncs take lately, without the odd long one

	goal  uint64 // of asked, which the syncing goroutine waits for; 0: it does not
	full  signal // one value: the goal is reached
	pause int    // how many syncs after the last disappointment began at once
	skip  int    // how many of the next ones will
}

// maxGatherPause bounds for how many syncs it is not tried again.
const maxGatherPause = 16

// ask counts the units of a record that is to be synced.
func (g *gathering) ask(units uint32) {
	g.asked += uint64(units)
	if g.goal > 0 && g.asked >= g.goal {
		g.goal = 0
		g.full.Wake()
	}
}

// learn takes note of how long a sync took.
func (g *gathering) learn(took time.Duration) {
	if g.typical == 0 {
		g.typical = took
	}
	g.typical += (min(took, 2*g.typical) - g.typical) / 8
}

// begin sets the goal after a sync that served so many units. It reports whether
// there is something to wait for.
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

// end learns from how it went.
func (g *gathering) end() {
	if g.goal == 0 {
		g.pause = max(g.pause-1, 0)
		return
	}
	g.goal = 0
	g.pause = min(2*g.pause+2, maxGatherPause)
	g.skip = g.pause
}

// gatherLocked is called after a sync that served so many units. The caller has the
// syncing role. It unlocks mu meanwhile.
func (l *Log) gatherLocked(served uint64) {
	if !l.mu.gather.begin(served) {
		l.mu.Unlock()
		// Those just woken bring the next records: a yield lets them be many.
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
	case <-l.mu.gather.full: // it came together with the limit
	default:
	}
}
