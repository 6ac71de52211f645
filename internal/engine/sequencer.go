package engine

import (
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// sequencer keeps the visible number and the pins: at which number, and at which time of
// the store's clock, each reader reads.
//
//	S1. Every number up to visible has been applied in its partition.
//	S2. visible never decreases.
//	S3. The numbers that Horizon returns include the number of every present reader, and
//	    a lower bound of the number of every future reader.
//	S4. The time that Horizon returns is no later than that of any reader, present or
//	    future. What has expired at that time has expired for all of them.
//
// A pin gets its number and its time, and enters the list, in one critical section, and
// Horizon reads them in one. So both ascend in the list, and what Horizon says about
// future readers stays true (S2, and the clock never goes back).
type sequencer struct {
	failed <-chan struct{} // closed when no more numbers will be applied
	cause  func() error
	now    func() uint64

	time atomic.Uint64 // of a member of a cluster: that of the newest visible mark

	mu      sync.Mutex
	visible kv.SeqNum
	ahead   ranges        // applied, while smaller numbers are not
	waits   []visibleWait // of goroutines that still wait, ascending, for larger numbers
	pins    list.List     // of *pin, oldest first
	marks   []timeMark    // of times that are not visible yet, in order
}

// visibleWait is what goroutines wait for. If all waited for the same channel, each record would
// wake all of them: that took a fifth of the processor time of transactions that read and write two
// keys.
type visibleWait struct {
	seq     kv.SeqNum
	reached chan struct{} // closed when seq is visible
	waiters int           // at least one
}

// timeMark says what time it is from a number on.
type timeMark struct {
	seq  kv.SeqNum
	time uint64
	pin  *pin // at the number, to be registered when that is visible; nil: none
}

// pin keeps a version of the store: while it is registered, compaction keeps everything
// that a reader at its number and its time can see.
type pin struct {
	at    kv.SeqNum
	now   uint64
	since time.Time
	place *list.Element // nil once released; guarded by sequencer.mu
}

func newSequencer(now func() uint64, failed <-chan struct{}, cause func() error) *sequencer {
	return &sequencer{now: now, failed: failed, cause: cause}
}

// seqRange is the numbers [from, to).
type seqRange struct{ from, to kv.SeqNum }

// ranges is a heap ordered by from.
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

// start sets the visible number to the one that recovery ended with.
func (s *sequencer) start(visible kv.SeqNum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visible = visible
}

// Applied implements commit.Applied.
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
	for len(s.marks) > 0 && s.marks[0].seq <= s.visible {
		m := &s.marks[0]
		s.time.Store(m.time)
		if m.pin != nil { // Horizon had the visible number before until now, so nothing is dropped yet
			m.pin.place = s.pins.PushBack(m.pin)
		}
		s.marks = s.marks[1:]
	}
	reached := 0
	for ; reached < len(s.waits) && s.waits[reached].seq <= s.visible; reached++ {
		close(s.waits[reached].reached)
	}
	if reached > 0 {
		s.waits = slices.Delete(s.waits, 0, reached)
	}
}

// AppliedTime is Applied of a number that only says what time it is from there on. Times and
// their numbers ascend from call to call. So a version has one time.
func (s *sequencer) AppliedTime(seq kv.SeqNum, time uint64) {
	s.mu.Lock()
	s.marks = append(s.marks, timeMark{seq: seq, time: time})
	s.mu.Unlock()
	s.Applied(seq, 1)
}

// AppliedPin is AppliedTime that also pins the number. The pin is registered, and may be read at,
// when the number is visible, even if that moves on at once.
func (s *sequencer) AppliedPin(seq kv.SeqNum, now uint64) *pin {
	p := &pin{at: seq, now: now, since: time.Now()}
	s.mu.Lock()
	s.marks = append(s.marks, timeMark{seq, now, p})
	s.mu.Unlock()
	s.Applied(seq, 1)
	return p
}

// Visible returns the number up to which everything can be read.
func (s *sequencer) Visible() kv.SeqNum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visible
}

// WaitVisible implements partition.Sequencer.
func (s *sequencer) WaitVisible(ctx context.Context, seq kv.SeqNum) error {
	reached := s.watch(seq)
	if reached == nil {
		return nil
	}
	select {
	case <-reached:
		return nil
	case <-s.failed:
		s.giveUp(seq)
		return s.cause()
	case <-ctx.Done():
		s.giveUp(seq)
		return ctx.Err()
	}
}

// watch returns nil if seq is visible, or a channel that is closed once it is. The caller receives
// from that, or calls giveUp.
func (s *sequencer) watch(seq kv.SeqNum) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.visible >= seq {
		return nil
	}
	at, waited := s.waitLocked(seq)
	if !waited {
		s.waits = slices.Insert(s.waits, at, visibleWait{seq: seq, reached: make(chan struct{})})
	}
	s.waits[at].waiters++
	return s.waits[at].reached
}

// giveUp ends a watch. The last watch of a number removes its wait, as Applied does once the number
// is visible. So there are no more waits than goroutines that wait.
func (s *sequencer) giveUp(seq kv.SeqNum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, waited := s.waitLocked(seq)
	if !waited {
		return
	}
	if s.waits[at].waiters--; s.waits[at].waiters == 0 {
		s.waits = slices.Delete(s.waits, at, at+1)
	}
}

// waitLocked returns the place of the wait for seq, and whether there is one.
func (s *sequencer) waitLocked(seq kv.SeqNum) (at int, waited bool) {
	return slices.BinarySearchFunc(s.waits, seq, func(w visibleWait, seq kv.SeqNum) int { return cmp.Compare(w.seq, seq) })
}

// acquire pins the visible number and the present time. It reads and registers them in one
// critical section; otherwise a compaction in between could drop what the reader needs.
func (s *sequencer) acquire() *pin {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &pin{at: s.visible, now: s.now(), since: time.Now()}
	p.place = s.pins.PushBack(p)
	return p
}

// again returns another pin at the number and the time of p, which is registered.
func (s *sequencer) again(p *pin) *pin {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &pin{at: p.at, now: p.now, since: time.Now()}
	q.place = s.pins.InsertAfter(q, p.place)
	return q
}

// release removes a pin. Idempotent.
func (s *sequencer) release(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.place != nil {
		s.pins.Remove(p.place)
		p.place = nil
	}
}

// Horizon implements partition.Sequencer. It returns the numbers of the pins, and the
// visible number, which is the least that the next pin can get (S2); and the time of the
// oldest pin, or else the present time (S4).
func (s *sequencer) Horizon() (snapshots []kv.SeqNum, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshots = make([]kv.SeqNum, 0, s.pins.Len()+1)
	for e := s.pins.Front(); e != nil; e = e.Next() {
		snapshots = append(snapshots, e.Value.(*pin).at)
	}
	now = s.now()
	if oldest := s.pins.Front(); oldest != nil {
		now = oldest.Value.(*pin).now
	}
	return slices.Compact(append(snapshots, s.visible)), now
}

// pinned returns the number of pins and the age of the oldest.
func (s *sequencer) pinned() (count int, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if oldest := s.pins.Front(); oldest != nil {
		age = time.Since(oldest.Value.(*pin).since)
	}
	return s.pins.Len(), age
}
