package engine

import (
	"container/heap"
	"context"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
)

// sequencer keeps the visible number and the live snapshots.
//
//	S1. Every number up to visible has been applied in its partition.
//	S2. visible grows.
//	S3. What snapshots returns holds every number at which a reader is now, and a
//	    lower bound of every number at which one will be.
type sequencer struct {
	failed <-chan struct{} // closed when no more numbers will be applied
	cause  func() error

	mu      sync.Mutex
	visible kv.SeqNum
	ahead   ranges            // applied, but not next in line
	moved   chan struct{}     // closed when visible grows; nil if nobody waits
	live    map[kv.SeqNum]int // snapshots by number
}

func newSequencer(failed <-chan struct{}, cause func() error) *sequencer {
	return &sequencer{failed: failed, cause: cause, live: make(map[kv.SeqNum]int)}
}

// seqRange is the numbers [from, to).
type seqRange struct{ from, to kv.SeqNum }

// ranges is a heap by from.
type ranges []seqRange

func (r ranges) Len() int           { return len(r) }
func (r ranges) Less(i, j int) bool { return r[i].from < r[j].from }
func (r ranges) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ranges) Push(x any)        { *r = append(*r, x.(seqRange)) }
func (r *ranges) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// start sets the number that recovery ended with.
func (s *sequencer) start(visible kv.SeqNum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visible = visible
}

// Applied implements partition.Sequencer.
func (s *sequencer) Applied(base kv.SeqNum, units uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := seqRange{base, base + kv.SeqNum(units)}
	if base != s.visible+1 {
		heap.Push(&s.ahead, r)
		return
	}
	s.visible = r.to - 1
	for len(s.ahead) > 0 && s.ahead[0].from == s.visible+1 {
		s.visible = heap.Pop(&s.ahead).(seqRange).to - 1
	}
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// Visible returns the number up to which everything can be read.
func (s *sequencer) Visible() kv.SeqNum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visible
}

// WaitVisible implements partition.Sequencer.
func (s *sequencer) WaitVisible(ctx context.Context, seq kv.SeqNum) error {
	for {
		moved := s.watch(seq)
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-s.failed:
			return s.cause()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch returns nil if seq is visible, or a channel to wait on.
func (s *sequencer) watch(seq kv.SeqNum) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.visible >= seq {
		return nil
	}
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	return s.moved
}

// acquire registers a snapshot at the visible number. Choosing and registering
// are one step, or a compaction in between could drop what the snapshot needs.
func (s *sequencer) acquire() kv.SeqNum {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[s.visible]++
	return s.visible
}

func (s *sequencer) release(seq kv.SeqNum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[seq]--; s.live[seq] == 0 {
		delete(s.live, seq)
	}
}

// Snapshots implements partition.Sequencer: the live ones, and the visible
// number, which is the least that the next one can get (S2).
func (s *sequencer) Snapshots() []kv.SeqNum {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := make([]kv.SeqNum, 0, len(s.live)+1)
	for seq := range s.live {
		numbers = append(numbers, seq)
	}
	numbers = append(numbers, s.visible)
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// open returns the number of live snapshots.
func (s *sequencer) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.live {
		n += count
	}
	return n
}
