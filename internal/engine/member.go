package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// member is the part of a store that is a member of a cluster: the state machine of a
// replicated log. It implements Member.
//
//	M1. What is inserted into a memtable is committed, and on this node's disk. So a flush
//	    waits for no log.
//	M2. Records are inserted in the order of the log, by the coordinators of a tenure if this
//	    node proposed them in it, otherwise by Apply. Only one of the two inserts at a time:
//	    endTenure waits until the coordinators have inserted everything committed and have
//	    ended.
//	M3. A partition skips what its tables hold, by number. So a restart may begin at any place
//	    that is not above what is flushed.
type member struct {
	e   *Engine
	log ReplicatedLog

	from    *Position       // where the log continues: the lowest position that a partition had saved; nil: from the beginning
	newest  *Position       // the highest position that a partition had saved; nil: none
	life    context.Context // ends when Close begins
	end     context.CancelFunc
	leading atomic.Pointer[writers] // nil: this node does not take writes
	places  *positions
	expires atomic.Bool   // there may be keys with an expiry
	seals   chan struct{} // capacity 1: wakes the sealer
	stopped chan struct{} // closed when nothing is inserted any more
	sealer  sync.WaitGroup
	applied atomic.Uint64 // newest number of what was applied, perhaps not yet visible

	numbered numberedTime // of the tenure

	current   atomic.Bool    // everything that was committed before the start has been applied: see compare
	digesting atomic.Bool    // a digest of the state is being computed
	digests   sync.WaitGroup // computes it, or waits for current

	mu       sync.Mutex
	state    Position
	first    kv.SeqNum // the first number that was applied here, so that its request id is known
	tables   kv.SeqNum // up to here records may be in tables already, and count as visible
	tenure   *tenureLog
	next     []*commit.Coordinator // not started; of the next tenure
	compared time.Time             // when the last entry that asks for a digest was applied, or the member started

	// compacted and mostCompacted are what Compact was last told, of the maintenance loop.
	compacted, mostCompacted uint64

	holding sync.Mutex
	holds   map[*Checkpoint]uint64 // the log after these indexes is kept
}

func newMember(e *Engine, log ReplicatedLog) *member {
	m := &member{
		e: e, log: log, places: newPositions(), seals: make(chan struct{}, 1), stopped: make(chan struct{}), holds: map[*Checkpoint]uint64{},
	}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// start begins to apply what is committed after m.from.
func (m *member) start() error {
	m.tables, m.compared = m.e.recovery.NextSeq-1, time.Now()
	m.first = 1
	if at := m.from; at != nil {
		m.state, m.first = *at, at.Seq+1
		m.applied.Store(uint64(at.Seq))
		m.e.sequencer.time.Store(at.Time)
		m.expires.Store(at.Time > 0)
		m.places.note(m.state, 0, true)
	}
	m.next = m.newCoordinators()
	m.sealer.Go(m.seal)
	if err := m.log.Start(m.from, m.newest, m); err != nil {
		return err
	}
	if m.e.opts.CompareInterval > 0 {
		m.digests.Go(func() {
			defer m.e.events.Guard()
			m.awaitCurrent()
		})
	}
	return nil
}

// close ends the log and with it the tenure, if there is one. Nothing is inserted afterwards.
func (m *member) close() error {
	m.end()
	err := m.log.Close()
	m.digests.Wait()
	m.mu.Lock()
	m.endTenure(kv.ErrClosed)
	m.mu.Unlock()
	close(m.stopped)
	m.sealer.Wait()
	return err
}

// Configure implements Member.
func (m *member) Configure(index, term uint64, conf []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Index, m.state.Term, m.state.Conf = index, term, conf
	m.places.note(m.state, 0, true)
	return nil
}

// Apply implements Member.
func (m *member) Apply(index, term uint64, b []byte) error {
	r, err := decodeEntry(b)
	if err != nil {
		return err
	}
	if err := m.failed(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.base != m.state.Seq+1 {
		return fmt.Errorf("%w: the cluster committed a record from number %d on, after number %d", kv.ErrCorrupt, r.base, m.state.Seq)
	}
	m.state.Index, m.state.Term, m.state.Seq = index, term, r.last()
	if r.kind == entryTime {
		m.state.Time = max(m.state.Time, r.time)
	}
	if m.tenure == nil || !m.tenure.committed(term, &r) {
		if m.tenure != nil { // another node leads, although the log has not said so yet
			m.endTenure(leaderless(m.log))
		}
		err = m.insert(&r)
	}
	switch r.kind {
	case entryTime:
		m.showTime(&r)
	case entryCompare:
		m.compare(&r)
	}
	m.applied.Store(uint64(r.last()))
	m.places.note(m.state, len(b), false)
	return err
}

// insert puts a record that another node proposed, or this one in an earlier tenure, into the
// partitions and makes it visible.
func (m *member) insert(r *entry) error {
	var joint partition.Joint
	var concerned []*partition.Partition // ascending
	err := record.Decode(r.payload, func(op *record.Op) error {
		if op.Partition >= len(m.e.partitions) || op.Unit >= r.units {
			return fmt.Errorf("a record of %d units has an operation for unit %d of partition %d; there are %d",
				r.units, op.Unit, op.Partition, len(m.e.partitions))
		}
		p := m.e.partitions[op.Partition]
		if n := len(concerned); n == 0 || concerned[n-1] != p {
			concerned = append(concerned, p)
		}
		if op.Expiry > 0 {
			m.expires.Store(true)
		}
		if p == concerned[0] {
			m.next[op.Partition].Remember(r.base, op)
		}
		p.Replay(r.base, op)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: records %d to %d of the cluster: %w", kv.ErrCorrupt, r.base, r.last(), err)
	}
	if r.last() > m.tables {
		joint.Seq = r.last()
		if len(concerned) > 1 { // all of them show it by one store
			for _, p := range concerned {
				p.Expect(&joint)
			}
			joint.Show()
		}
		for _, p := range concerned {
			p.Publish(r.last())
		}
		if r.kind == entryWrites {
			from := max(r.base, m.tables+1)
			m.e.sequencer.Applied(from, uint32(r.last()-from)+1)
		}
	}
	for _, p := range concerned {
		p.SealIfDue()
	}
	return nil
}

// showTime makes the time of an entry that of readers, once all before it is visible.
func (m *member) showTime(r *entry) {
	if r.base > m.tables {
		m.e.sequencer.AppliedTime(r.base, m.state.Time)
	} else {
		m.e.sequencer.time.Store(m.state.Time)
	}
}

// Room implements Member. While the memtables are full this node follows as fast as it flushes.
func (m *member) Room() <-chan struct{} {
	if m.leading.Load() != nil || m.e.Err() != nil {
		return nil
	}
	return m.e.budget.flushEnd(0)
}

// failed returns what ended the store, if the memtables are full: no flush makes room then.
func (m *member) failed() error {
	if m.leading.Load() != nil || !m.e.budget.stops(0) {
		return nil
	}
	return m.e.Err()
}

// Lead implements Member. The coordinators number from the state that holds now. The first
// entry sets the clock, if keys may expire; otherwise it only makes a first version.
func (m *member) Lead(t Tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenure != nil {
		m.endTenure(leaderless(m.log))
	}
	m.e.clock.raise(m.state.Time)
	m.tenure = newTenureLog(m, t, m.next)
	m.next = nil
	m.numbered = numberedTime{now: m.state.Time} // no record of an earlier tenure is checked any more: see endTenure
	for _, c := range m.tenure.coordinators {
		c.Start(m.tenure, m.first, m.state.Seq)
	}
	now := uint64(0)
	if m.expires.Load() {
		now = m.e.Now()
	}
	if m.tenure.stamp(now) == nil { // without room or a log, there is no need for it
		m.tenure.since++
	}
	m.leading.Store(&m.tenure.writers)
	m.wakeSealer()
}

// awaitTenure waits, if this node leads, until the first version of its tenure is visible: what is
// read from then on can be committed in it. It also returns if the tenure or ctx ends.
func (m *member) awaitTenure(ctx context.Context) {
	if to := m.leading.Load(); to != nil && m.e.sequencer.Visible() < to.tenure.since {
		_ = to.tenure.waitVisible(ctx, to.tenure.since) // what is read is valid in any case
	}
}

// useTime makes sure that the clock is set before the first key with an expiry: a position that
// has the key then has a time.
//
// Errors: a kv.NotLeaderError, and a kv.OverloadError if the log has no room.
func (m *member) useTime() error {
	if m.expires.Load() {
		return nil
	}
	m.mu.Lock() // so that the next tenure sets the clock by itself if this entry is lost
	defer m.mu.Unlock()
	w := m.leading.Load()
	switch {
	case m.expires.Load():
		return nil
	case w == nil:
		return leaderless(m.log)
	}
	err := w.tenure.stamp(m.e.Now())
	if errors.Is(err, wal.ErrNoRoomYet) {
		return &kv.OverloadError{Reason: "log_full", RetryAfter: patience}
	}
	if err == nil {
		m.expires.Store(true)
	}
	return err
}

// Lost implements Member. The coordinators end when what they have proposed has its outcomes.
func (m *member) Lost(t Tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenure == nil || m.tenure.id != t {
		return
	}
	m.leading.Store(nil)
	if m.tenure.refuse(leaderless(m.log)) == 0 {
		m.endTenure(leaderless(m.log))
	}
}

// Ended implements Member. What is committed was applied before.
func (m *member) Ended(outcomes []Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenure == nil {
		return
	}
	if m.tenure.ended(outcomes) {
		m.endTenure(leaderless(m.log))
	}
}

// endTenure ends the coordinators: they insert what is committed, and their other callers get
// kv.ErrUncertain. The caller holds m.mu. It waits for work in memory only.
func (m *member) endTenure(cause error) {
	t := m.tenure
	if t == nil {
		return
	}
	m.leading.Store(nil)
	t.refuse(cause)
	// The error is that the store has failed; then nothing is acknowledged any more.
	_ = m.e.sequencer.WaitVisible(context.Background(), m.inserted())
	t.stop(cause)
	m.next = m.newCoordinators()
	for i, c := range t.coordinators {
		c.Close()
		m.next[i].Inherit(c)
	}
	m.tenure = nil
	m.wakeSealer()
}

// newCoordinators returns those of the next tenure.
func (m *member) newCoordinators() []*commit.Coordinator {
	all := make([]*commit.Coordinator, 0, len(m.e.partitions))
	orchestrators := m.e.orchestrators()
	for _, p := range m.e.partitions {
		all = append(all, commit.New(m.e.commitOptions(p, orchestrators)))
	}
	return all
}

// inserted returns the newest number of what coordinators have to insert: all that was applied.
func (m *member) inserted() kv.SeqNum { return kv.SeqNum(m.applied.Load()) }

// coordinator returns that of a partition, which may not be started.
func (m *member) coordinator(id int) *commit.Coordinator {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenure != nil {
		return m.tenure.coordinators[id]
	}
	return m.next[id]
}

// round returns once this node can answer reads: it has applied everything that was
// acknowledged anywhere before the call, or as much of that as fresh asks for, and shows it. Its
// rounds are what tells how new the state is, so a read that may lag asks for one if the newest
// one is too old.
//
// A version that this node does not show is one that it lacks, or none of this cluster. The
// log can tell: what a caller knows of is committed, so it is applied after a round.
//
// Errors: kv.ErrVersionAhead for such a version, those of the log, the store's failure, the
// error of ctx.
func (m *member) round(ctx context.Context, fresh kv.Freshness) error {
	if fresh.MaxLag <= 0 || !m.log.Fresh(fresh.MaxLag) || m.lacks(fresh.MinVersion) {
		if err := m.log.Read(ctx); err != nil {
			if failed := m.e.Err(); failed != nil {
				return failed
			}
			return err
		}
	}
	if failed := m.e.Err(); failed != nil { // a state that differs from that of the majority answers nothing
		return failed
	}
	if err := m.e.sequencer.WaitVisible(ctx, kv.SeqNum(m.applied.Load())); err != nil {
		return err
	}
	if m.lacks(fresh.MinVersion) {
		return versionAhead(fresh.MinVersion)
	}
	return nil
}

// lacks reports whether the node does not show a version yet.
func (m *member) lacks(version kv.SeqNum) bool {
	return version > 0 && version > m.e.sequencer.Visible()
}

// versionAhead refuses a version that a call names.
func versionAhead(version kv.SeqNum) error {
	return fmt.Errorf("%w: version %d", kv.ErrVersionAhead, version)
}

// memberWriter is the partition.Writer of a partition of a member.
type memberWriter struct {
	m  *member
	id int
}

// Wake implements partition.Writer: the coordinator that applies records calls SealIfDue, or
// the sealer if there is none.
func (w memberWriter) Wake() {
	if now := w.m.leading.Load(); now != nil {
		now.coordinators[w.id].Wake()
		if w.m.leading.Load() == now {
			return
		}
	}
	w.m.wakeSealer()
}

// Stopped implements partition.Writer.
func (w memberWriter) Stopped() <-chan struct{} { return w.m.stopped }

func (m *member) wakeSealer() {
	select {
	case m.seals <- struct{}{}:
	default:
	}
}

// seal is the sealer: it seals memtables when they are asked to while no record comes.
func (m *member) seal() {
	defer m.e.events.Guard()
	for {
		select {
		case <-m.stopped:
			return
		case <-m.seals:
		}
		m.mu.Lock()
		if m.tenure == nil {
			for _, p := range m.e.partitions {
				p.SealIfDue()
			}
		} else {
			for _, c := range m.tenure.coordinators {
				c.Wake()
			}
		}
		m.mu.Unlock()
	}
}

// memberLog is what a flush waits for: nothing (M1).
type memberLog struct{ e *Engine }

// WaitSynced implements partition.Log.
func (memberLog) WaitSynced(context.Context, wal.Pos) error { return nil }

// Err implements partition.Log.
func (l memberLog) Err() error { return l.e.Err() }
