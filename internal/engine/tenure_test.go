package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// scriptedLog is a replicated log of which a test decides what becomes of proposals.
type scriptedLog struct {
	ReplicatedLog
	refuse    error
	onPropose func() // nil: nothing is called
	ids       uint64
	bases     []kv.SeqNum
}

func (l *scriptedLog) Propose(_ Tenure, record []byte) (uint64, error) {
	if l.onPropose != nil {
		l.onPropose()
	}
	if l.refuse != nil {
		return 0, l.refuse
	}
	e, err := decodeEntry(record)
	if err != nil {
		return 0, err
	}
	l.ids++
	l.bases = append(l.bases, e.base)
	return l.ids, nil
}

func (l *scriptedLog) commit(t *tenureLog, n uint32) bool {
	e := entry{kind: entryWrites, base: l.bases[0], units: n}
	l.bases = l.bases[1:]
	return t.committed(t.id.Term, &e)
}

// A caller that finds no room waits for an outcome, and a refused record takes no number.
func TestATenureWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &scriptedLog{}
		tenure := newTenureLog(&member{log: log, state: Position{Seq: 10}}, Tenure{Term: 5, Number: 1}, nil)
		require.NoError(t, tenure.AwaitRoom(t.Context()), "with nothing under way there is room")
		w := make(channelWaker, 1)
		base, first, err := tenure.Append([]byte("a"), 2, kv.DurabilityMemory, w, nil)
		require.NoError(t, err)
		require.EqualValues(t, 11, base)

		log.refuse = wal.ErrNoRoomYet
		_, _, err = tenure.Append([]byte("b"), 1, kv.DurabilitySync, w, nil)
		require.ErrorIs(t, err, wal.ErrNoRoomYet)
		gaveUp := errors.New("gave up")
		ctx, giveUp := context.WithCancelCause(t.Context())
		impatient, patient := make(chan error, 1), make(chan error, 1)
		go func() { impatient <- tenure.AwaitRoom(ctx) }()
		go func() { patient <- tenure.AwaitRoom(t.Context()) }()
		synctest.Wait()
		giveUp(gaveUp)
		require.ErrorIs(t, <-impatient, gaveUp)
		require.Empty(t, patient)
		require.True(t, log.commit(tenure, 2))
		require.Len(t, w, 1)
		require.False(t, tenure.ended([]Outcome{{ID: 1, Committed: true}}))
		require.NoError(t, <-patient)

		log.refuse = nil
		base, second, err := tenure.Append([]byte("b"), 1, kv.DurabilitySync, w, nil)
		require.NoError(t, err)
		require.EqualValues(t, 13, base)
		require.Greater(t, second, first)
		for _, level := range []kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync} {
			require.Equal(t, first, tenure.Reached(level))
		}
		require.Equal(t, second, tenure.End())
	})
}

// What is committed takes room until its outcome is reported. A caller that is refused in between proposes
// its record once more, after the report, and not in a loop until then. One that is refused before the
// report and waits after it finds room.
func TestRoomIsAwaitedUntilOutcomesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &scriptedLog{}
		tenure := newTenureLog(&member{log: log}, Tenure{Term: 5, Number: 1}, nil)
		for range 2 {
			_, _, err := tenure.Append([]byte("a"), 1, kv.DurabilitySync, make(channelWaker, 1), nil)
			require.NoError(t, err)
			require.True(t, log.commit(tenure, 1))
		}
		log.refuse = wal.ErrNoRoomYet
		proposed := 0
		log.onPropose = func() {
			if proposed++; proposed == 1000 { // the outcomes are reported so late
				log.refuse = nil
			}
		}
		appended := make(chan error, 1)
		go func() {
			_, err := commit.AppendEmpty(t.Context(), tenure)
			appended <- err
		}()
		synctest.Wait()
		require.Equal(t, 1, proposed)
		require.False(t, tenure.ended([]Outcome{{ID: 1, Committed: true}}))
		synctest.Wait()
		require.Equal(t, 2, proposed, "the log decides how much room an outcome makes")
		require.Empty(t, appended)
		log.refuse = nil
		require.False(t, tenure.ended([]Outcome{{ID: 2, Committed: true}}))
		require.NoError(t, <-appended)
		require.Equal(t, 3, proposed)

		require.True(t, log.commit(tenure, 1))
		log.refuse = wal.ErrNoRoomYet
		_, _, err := tenure.Append([]byte("b"), 1, kv.DurabilitySync, make(channelWaker, 1), nil)
		require.ErrorIs(t, err, wal.ErrNoRoomYet)
		require.False(t, tenure.ended([]Outcome{{ID: 3, Committed: true}}))
		require.NoError(t, tenure.AwaitRoom(t.Context()), "no outcome is left to wait for")
	})
}

// A tenure that is over takes nothing more, waits for the outcomes of what it has proposed, and
// then ends the waits of callers.
func TestATenureEndsWithItsOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &scriptedLog{}
		s := newSequencer(func() uint64 { return 0 }, nil, nil)
		tenure := newTenureLog(&member{e: &Engine{sequencer: s}, log: log}, Tenure{Term: 5, Number: 2}, nil)
		w := make(channelWaker, 1)
		for range 3 {
			_, _, err := tenure.Append([]byte("a"), 1, kv.DurabilitySync, w, nil)
			require.NoError(t, err)
		}
		durable, visible := make(chan error, 1), make(chan error, 1)
		go func() { durable <- commit.AwaitDurable(t.Context(), tenure, kv.DurabilitySync) }()
		go func() { visible <- tenure.waitVisible(t.Context(), 3) }()
		synctest.Wait()
		other := errors.New("another node leads")
		require.Equal(t, 3, tenure.refuse(other))
		_, _, err := tenure.Append([]byte("b"), 1, kv.DurabilitySync, w, nil)
		require.ErrorIs(t, err, other)
		require.NoError(t, tenure.Err(), "the outcomes are not known yet")

		require.True(t, log.commit(tenure, 1))
		require.False(t, tenure.committed(4, &entry{base: 2, units: 1}), "a record of another term is of another tenure")
		require.False(t, tenure.ended([]Outcome{{ID: 1, Committed: true}}))
		require.Empty(t, durable)
		require.False(t, tenure.ended([]Outcome{{ID: 1}}), "that was of an earlier tenure")
		require.True(t, tenure.ended([]Outcome{{ID: 2}}))
		tenure.stop(other)
		require.ErrorIs(t, tenure.Err(), other)
		err = <-durable
		require.ErrorIs(t, err, kv.ErrUncertain)
		require.ErrorIs(t, err, other)
		require.ErrorIs(t, <-visible, other)
		require.NoError(t, tenure.WaitSynced(t.Context(), 1), "that was committed")
		require.ErrorIs(t, tenure.AwaitRoom(t.Context()), other)
	})
}

// Before the first key with an expiry comes an entry that sets the clock. No tenure begins between
// that entry and the note that there are such keys: it would not set the clock itself, and the
// entry may be lost with the tenure before.
func TestTheClockIsSetBeforeTheFirstExpiryOfEveryTenure(t *testing.T) {
	log := &scriptedLog{}
	e := &Engine{clock: &clock{source: systemTime(bootClock{})}}
	e.clock.read()
	e.sequencer = newSequencer(e.clock.Now, nil, nil)
	e.now = e.sequencer.time.Load
	e.member = newMember(e, log)
	m := e.member
	m.tenure = newTenureLog(m, Tenure{Term: 5, Number: 1}, nil)
	m.leading.Store(&m.tenure.writers)
	apart := false
	log.onPropose = func() {
		if apart = !m.mu.TryLock(); !apart {
			m.mu.Unlock()
		}
	}
	log.refuse = wal.ErrNoRoomYet
	require.ErrorIs(t, m.useTime(), kv.ErrOverloaded)
	log.refuse = nil
	require.NoError(t, m.useTime())
	require.True(t, apart)
	require.NoError(t, m.useTime())
	require.Len(t, log.bases, 1)
}

// Records of the cluster that cannot be right end the store, before they change anything.
func TestAMemberRefusesRecordsThatDoNotFollow(t *testing.T) {
	m := newMember(&Engine{budget: newBudget(1<<20, 1)}, &scriptedLog{})
	m.state.Seq = 10
	for name, e := range map[string]entry{
		"a gap": {kind: entryWrites, base: 12, units: 1}, "again": {kind: entryWrites, base: 10, units: 1},
		"malformed":         {kind: entryWrites, base: 11, units: 1, payload: []byte{9}},
		"no such partition": {kind: entryWrites, base: 11, units: 1, payload: ofPartition(3)}, "unknown": {kind: 7, base: 11, units: 1},
	} {
		require.ErrorIs(t, m.Apply(3, 1, e.encode()), kv.ErrCorrupt, name)
		m.state.Seq = 10
	}
	require.ErrorIs(t, m.Apply(3, 1, []byte{9}), kv.ErrUnsupportedVersion)
}

func ofPartition(id int) []byte {
	var r record.Encoder
	r.Section(id, 1)
	r.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindDelete, Key: []byte("a")})
	return r.Bytes()
}

// While an entry sets the clock no record is checked: it would be numbered after the entry, and
// checked by the time before. The time that records are checked by is then that of the entry,
// whether or not readers see it, and does not go back by a later one.
func TestNoRecordIsCheckedWhileTheClockIsSet(t *testing.T) {
	log := &scriptedLog{}
	m := &member{log: log}
	coordinators := []*commit.Coordinator{
		commit.New(commit.Options{Orchestrator: commit.NewOrchestrator(nil, new(commit.Company)), RequestIDs: commit.NewRequestWindow(1)}),
		commit.New(commit.Options{ID: 1, Orchestrator: commit.NewOrchestrator(nil, new(commit.Company)), RequestIDs: commit.NewRequestWindow(1)}),
	}
	tenure := newTenureLog(m, Tenure{Term: 5, Number: 1}, coordinators)
	var checked sync.WaitGroup
	var checks atomic.Int64
	log.onPropose = func() {
		for _, c := range coordinators {
			checked.Go(func() {
				_, _, err := c.Remembered(kv.RequestID{ClientID: 1, Sequence: 1}) // under appendMu, as the check of a record
				assert.NoError(t, err)
				checks.Add(1)
			})
		}
		for range 1000 {
			runtime.Gosched()
		}
		require.Zero(t, checks.Load())
	}
	require.NoError(t, tenure.stamp(100))
	checked.Wait()
	require.EqualValues(t, 2, checks.Load())
	log.onPropose = nil
	require.NoError(t, tenure.stamp(0))
	now, from := m.numbered.read()
	require.EqualValues(t, 100, now)
	require.EqualValues(t, 1, from)
	log.refuse = wal.ErrNoRoomYet
	require.ErrorIs(t, tenure.stamp(200), wal.ErrNoRoomYet)
	now, _ = m.numbered.read()
	require.EqualValues(t, 100, now, "the entry has no place in the log")
}
