package memory

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// garbageShare: a quarter of the account is for garbage, beside what requests hold.
	garbageShare = 4
	// leastGarbage is the least that is for garbage: what the collector leaves in any program.
	leastGarbage = 4 << 20
)

// garbage counts the large pieces that were given back and that the garbage collector has not
// freed, as far as is known. The collector alone does not bound them: its limit is a soft one, and
// while other processes have the processors, requests allocate several large pieces between two of
// its steps.
//
// What is given back while a collection runs may be freed by the next one only. So a piece counts
// until two collections have ended, or one that began after it.
type garbage struct {
	bytes atomic.Int64 // the sum of younger and older, and of what a call of collect is waiting for

	mu struct {
		sync.Mutex
		cycle       uint64 // collections that had ended
		younger     int64  // given back since then
		older       int64  // given back in the time of the collection before
		collections [1]metrics.Sample
	}
	collecting sync.Mutex
	swept      time.Time // when sweep last began to collect; guarded by collecting
}

// add counts a piece that was given back.
func (g *garbage) add(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ageLocked()
	g.mu.younger += bytes
	g.bytes.Add(bytes)
}

// age forgets what the collector has freed by itself.
func (g *garbage) age() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ageLocked()
}

func (g *garbage) ageLocked() {
	all := g.mu.collections[:]
	all[0].Name = "/gc/cycles/total:gc-cycles"
	metrics.Read(all)
	passed := all[0].Value.Uint64() - g.mu.cycle
	g.mu.cycle += passed
	switch passed {
	case 0:
		return
	case 1:
		g.bytes.Add(-g.mu.older)
		g.mu.older = g.mu.younger
	default:
		g.bytes.Add(-g.mu.older - g.mu.younger)
		g.mu.older = 0
	}
	g.mu.younger = 0
}

// collect has the collector free what was given back before, while over reports that this is too
// much. Concurrent calls share collections.
func (g *garbage) collect(over func() bool) {
	g.collecting.Lock()
	defer g.collecting.Unlock()
	if g.age(); !over() {
		return
	}
	g.collectLocked()
}

// sweep is collect whatever was given back, unless sweep did so within the given time.
func (g *garbage) sweep(within time.Duration) {
	g.collecting.Lock()
	defer g.collecting.Unlock()
	if now := time.Now(); now.Sub(g.swept) >= within {
		g.swept = now
		g.collectLocked()
	}
}

func (g *garbage) collectLocked() {
	g.mu.Lock()
	collected := g.mu.older + g.mu.younger
	g.mu.older, g.mu.younger = 0, 0
	g.mu.Unlock()
	runtime.GC()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes.Add(-collected)
	g.ageLocked()
}
