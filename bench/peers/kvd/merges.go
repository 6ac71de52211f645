package kvd

import (
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/event"
)

// merges records when compactions ran.
type merges struct {
	mu struct {
		sync.Mutex
		spans []peers.Span
	}
}

func (m *merges) add(c event.Compaction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.mu.spans = append(m.mu.spans, peers.Span{Begin: now.Add(-c.Took), End: now})
}

// Merges returns the compactions of all partitions that ended so far.
func (s *store) Merges() []peers.Span {
	s.merges.mu.Lock()
	defer s.merges.mu.Unlock()
	return slices.Clone(s.merges.mu.spans)
}
