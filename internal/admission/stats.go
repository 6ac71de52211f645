package admission

import (
	"math/bits"
	"time"
)

const (
	// FirstWait is the upper bound of the first counter of Stats.Waits.
	FirstWait = 250 * time.Microsecond
	// waitCount: the last but one reaches to 128 ms, above any wait.
	waitCount = 11
)

// Stats are gauges of now, and counters of the work that did not find room at
// once.
type Stats struct {
	Inside, Waiting Size

	// Admitted counts work that was let in after a wait, and WaitTime is what it
	// waited in all. Waits[i] counts waits of at most FirstWait * 2^i that are in no
	// smaller class, and the last one those above.
	Admitted uint64
	WaitTime time.Duration
	Waits    [waitCount]uint64

	RefusedLate uint64 // refused for QueueTime
	RefusedFull uint64 // refused for QueueFull
	GivenUp     uint64 // its time ran out, or its caller gave up
}

func (s *Stats) admitted(wait time.Duration) {
	s.Admitted++
	s.WaitTime += wait
	steps := uint64(max(0, wait-1) / FirstWait)
	s.Waits[min(bits.Len64(steps), waitCount-1)]++
}

// Stats returns a snapshot.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Inside, s.Waiting = sizeOf(g.inside.Load()), g.queue.size
	return s
}
