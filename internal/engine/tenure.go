package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// tenureLog is the replicated log as the coordinators of one tenure see it. A position in it
// counts the records that were proposed. It implements commit.CallerLog.
type tenureLog struct {
	writers
	m  *member
	id Tenure
	// since is the number of the first record of the tenure, if Lead has proposed one; a
	// transaction commits only if it read at this version or a later one.
	since kv.SeqNum

	reached atomic.Uint64 // how many records are committed
	stopped atomic.Pointer[error]

	life context.Context // ends, with the cause, when the coordinators are to end
	end  context.CancelCauseFunc

	mu      sync.Mutex
	refusal error // why Append takes nothing any more
	next    kv.SeqNum
	appends uint64
	pending []proposed // records that are not committed, in order
	// newest and reported are the ids of the last record and of the last outcome. A record takes room
	// until its outcome is reported, some time after it was committed.
	newest, reported uint64
	room             []wal.Waker
	moved            chan struct{} // closed when something is committed or the tenure ends; nil if no goroutine waits
}

// numberedTime is the time at the end of the log of a tenure. Readers see it later, once the
// entry that sets it is committed (sequencer.time); a condition that holds for them until then
// may not hold for a record that comes after the entry.
//
// It is written under the appendMu of all coordinators of the tenure, and read under that of one.
type numberedTime struct {
	now  uint64
	from kv.SeqNum // the entry that sets it; 0: it was applied before the tenure
}

func (n *numberedTime) read() (now uint64, from kv.SeqNum) { return n.now, n.from }

// set notes an entry that sets the time, which does not go back by it.
func (n *numberedTime) set(now uint64, from kv.SeqNum) {
	if now > n.now {
		n.now, n.from = now, from
	}
}

// proposed is a record that was proposed and is not committed yet.
type proposed struct {
	id    uint64
	base  kv.SeqNum
	waker wal.Waker // nil: no coordinator waits for it
}

var _ commit.CallerLog = (*tenureLog)(nil)

func newTenureLog(m *member, id Tenure, coordinators []*commit.Coordinator) *tenureLog {
	t := &tenureLog{m: m, id: id, since: m.state.Seq, next: m.state.Seq + 1}
	t.writers = writers{coordinators: coordinators, log: t, tenure: t}
	t.life, t.end = context.WithCancelCause(context.Background())
	return t
}

// Append implements commit.Log.
func (t *tenureLog) Append(payload []byte, units uint32, _ kv.Durability, w wal.Waker, _ *trace.Batch) (kv.SeqNum, wal.Pos, error) {
	return t.propose(entry{kind: entryWrites, units: units, payload: payload}, w)
}

func (t *tenureLog) propose(r entry, w wal.Waker) (kv.SeqNum, wal.Pos, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal != nil {
		return 0, 0, t.refusal
	}
	r.base = t.next
	id, err := t.m.log.Propose(t.id, r.encode())
	if err != nil {
		return 0, 0, err
	}
	t.next += kv.SeqNum(r.units)
	t.appends++
	t.newest = id
	t.pending = append(t.pending, proposed{id, r.base, w})
	return r.base, wal.Pos(t.appends), nil
}

// stamp proposes an entry that sets the store's clock to a time; 0: it stays. No record is checked
// before it and numbered after it, by the time that was before.
func (t *tenureLog) stamp(time uint64) (err error) {
	commit.BetweenRecords(t.coordinators, func() {
		var at kv.SeqNum
		if at, _, err = t.propose(entry{kind: entryTime, units: 1, time: time}, nil); err == nil {
			t.m.numbered.set(time, at)
		}
	})
	return err
}

// compare proposes an entry that asks all members for a digest of their state.
func (t *tenureLog) compare() error {
	_, _, err := t.propose(entry{kind: entryCompare, units: 1}, nil)
	return err
}

// committed reports whether a committed record was proposed in this tenure, and then lets the
// coordinators apply it.
func (t *tenureLog) committed(term uint64, r *entry) bool {
	t.mu.Lock()
	if term != t.id.Term || len(t.pending) == 0 || t.pending[0].base != r.base {
		t.mu.Unlock()
		return false
	}
	w := t.pending[0].waker
	t.pending[0] = proposed{}
	t.pending = t.pending[1:]
	t.reached.Add(1)
	t.wakeWaitersLocked()
	t.mu.Unlock()
	if w != nil {
		w.Wake()
	}
	return true
}

// ended takes outcomes, and reports whether the coordinators have to end: a record was not
// committed, or no further one can be.
func (t *tenureLog) ended(outcomes []Outcome) bool {
	t.mu.Lock()
	lost := t.refusal != nil && len(t.pending) == 0
	for _, o := range outcomes {
		t.reported = o.ID
		lost = lost || !o.Committed && len(t.pending) > 0 && o.ID >= t.pending[0].id
	}
	room := t.room
	t.room = nil
	t.mu.Unlock()
	for _, w := range room {
		w.Wake()
	}
	return lost
}

// refuse has Append take nothing any more, and returns how many records have no outcome.
func (t *tenureLog) refuse(cause error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal == nil {
		t.refusal = cause
	}
	return len(t.pending)
}

// stop ends the log: what is not committed fails.
func (t *tenureLog) stop(cause error) {
	t.stopped.Store(&cause)
	t.end(cause)
	t.mu.Lock()
	pending, room := t.pending, t.room
	t.pending, t.room = nil, nil
	t.wakeWaitersLocked()
	t.mu.Unlock()
	for _, p := range pending {
		if p.waker != nil {
			p.waker.Wake()
		}
	}
	for _, w := range room {
		w.Wake()
	}
}

func (t *tenureLog) wakeWaitersLocked() {
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// Flush implements commit.Log: Append has proposed.
func (t *tenureLog) Flush() {}

// FlushOrSync implements commit.Log.
func (t *tenureLog) FlushOrSync() {}

// Reached implements commit.Log: no durability is less than that of a majority.
func (t *tenureLog) Reached(kv.Durability) wal.Pos { return wal.Pos(t.reached.Load()) }

// OnRoom implements commit.Log. Once all outcomes are reported there is room.
func (t *tenureLog) OnRoom(w wal.Waker) {
	t.mu.Lock()
	waits := t.reported < t.newest && t.stopped.Load() == nil
	if waits {
		t.room = append(t.room, w)
	}
	t.mu.Unlock()
	if !waits {
		w.Wake()
	}
}

// Err implements commit.Log.
func (t *tenureLog) Err() error {
	if err := t.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// AwaitRoom implements commit.CallerLog.
func (t *tenureLog) AwaitRoom(ctx context.Context) error {
	woken := make(chan struct{}, 1)
	t.OnRoom(channelWaker(woken))
	select {
	case <-woken:
		return t.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// channelWaker is a Waker that sends, once.
type channelWaker chan struct{}

func (w channelWaker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w channelWaker) RunReady() { w.Wake() }

// End implements commit.CallerLog.
func (t *tenureLog) End() wal.Pos {
	t.mu.Lock()
	defer t.mu.Unlock()
	return wal.Pos(t.appends)
}

// WaitSynced implements commit.CallerLog. What is committed stays so after the tenure.
func (t *tenureLog) WaitSynced(ctx context.Context, pos wal.Pos) error {
	for {
		t.mu.Lock()
		if wal.Pos(t.reached.Load()) >= pos {
			t.mu.Unlock()
			return nil
		}
		if err := t.Err(); err != nil {
			t.mu.Unlock()
			return err
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitVisible is sequencer.WaitVisible that ends with the tenure: its uncommitted numbers may
// never become visible, or be those of other records.
func (t *tenureLog) waitVisible(ctx context.Context, seq kv.SeqNum) error {
	return t.during(ctx, func(ctx context.Context) error { return t.m.e.sequencer.WaitVisible(ctx, seq) })
}

// during calls wait with a context that ends with the tenure, too. The error is the cause then.
func (t *tenureLog) during(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(context.Cause(t.life)) })()
	err := wait(ctx)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}
