package replica

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// member is a node of a group of loops.
type member struct {
	group *[]*member
	fs    *faultfs.FS
	log   *raftlog.Log
	loop  *Loop

	mu       sync.Mutex
	records  []string
	tenure   Tenure // zero: none
	outcomes []Outcome
	deaf     bool
	slow     time.Duration           // Apply takes so long
	room     chan struct{}           // nil: it takes records
	loses    map[pb.MessageType]bool // of what it sends
}

func (m *member) Apply(_, _ uint64, record []byte) error {
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	time.Sleep(slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, string(record))
	return nil
}

func (m *member) Room() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.room
}

func (m *member) Configure(uint64, uint64, *pb.ConfState, string) error { return nil }

func (m *member) Lead(t Tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tenure = t
}

func (m *member) Lost(t Tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenure != t {
		panic("another tenure is over")
	}
	m.tenure = Tenure{}
}

func (m *member) Ended(o []Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes = append(m.outcomes, o...)
}

func (m *member) Send(messages []*pb.Message) {
	for _, msg := range messages {
		if msg.GetTo() > uint64(len(*m.group)) {
			continue
		}
		to := (*m.group)[msg.GetTo()-1]
		to.mu.Lock()
		loop, deaf := to.loop, to.deaf
		to.mu.Unlock()
		m.mu.Lock()
		deaf = deaf || m.deaf || m.loses[msg.GetType()]
		m.mu.Unlock()
		if loop != nil && !deaf {
			loop.Deliver(proto.Clone(msg).(*pb.Message))
		}
	}
}

// listens sets whether messages come to a member, and leave it.
func (m *member) listens(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf = !yes
}

func (m *member) tenureNow() Tenure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tenure
}

func (m *member) ended() []Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outcomes)
}

func (m *member) applied() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// startLoops starts the loops of a group, and returns when one of them leads.
func startLoops(t *testing.T, size int) (group []*member, leader *member) {
	var voters []uint64
	for i := range size {
		voters = append(voters, uint64(i+1))
	}
	var cores []*Core
	for _, id := range voters {
		m := &member{group: &group, fs: faultfs.Wrap(vfs.NewMem(), nil)}
		var err error
		m.log, _, err = raftlog.Open(raftlog.Options{FS: m.fs, Dir: simDir, StoreID: id, Fresh: true})
		require.NoError(t, err)
		start, err := Bootstrap(m.log, simGroup, voters)
		require.NoError(t, err)
		core, err := New(Config{ID: id, Boot: 1, Log: m.log, Group: simGroup, Start: start, Machine: m, Transport: m})
		require.NoError(t, err)
		cores = append(cores, core)
		group = append(group, m)
	}
	for i, m := range group {
		loop := Start(cores[i], m)
		m.mu.Lock()
		m.loop = loop
		m.mu.Unlock()
	}
	for leader == nil {
		time.Sleep(TickInterval)
		synctest.Wait()
		for _, m := range group {
			if m.tenureNow() != (Tenure{}) {
				leader = m
			}
		}
	}
	return group, leader
}

func stop(t *testing.T, group []*member) {
	for _, m := range group {
		m.loop.Stop()
		m.loop.Stop()
		require.ErrorIs(t, m.loop.Err(), kv.ErrClosed)
		require.NoError(t, m.log.Close())
		require.Zero(t, m.tenureNow())
		require.Zero(t, m.loop.inFlight)
	}
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		first := leader.tenureNow()
		var want []Outcome
		for i := range 100 {
			id, err := leader.loop.Propose(first, []byte{byte(i)})
			require.NoError(t, err)
			want = append(want, Outcome{ID: id, Result: Committed, Index: uint64(i + 3)})
		}
		synctest.Wait()
		require.Equal(t, want, leader.ended())
		for _, m := range group {
			require.NoError(t, m.loop.Read(t.Context()))
			require.Equal(t, leader.applied(), m.applied())
			require.Len(t, m.applied(), 100)
			require.EqualValues(t, 1, m.loop.Counts().Rounds.Sum)
			require.EqualValues(t, 1, m.loop.Counts().LeaderChanges)
		}
		counts := leader.loop.Counts()
		require.EqualValues(t, 100, counts.Committed)
		require.EqualValues(t, 1, counts.Elections)
		require.EqualValues(t, 1, counts.Tenures)
		time.Sleep(TickInterval)
		synctest.Wait()
		status := leader.loop.Status()
		require.EqualValues(t, 102, status.Last)
		for _, m := range leader.loop.MembersAtTick() {
			require.Equal(t, Member{ID: m.ID, Voter: true, Recent: true, Silent: m.Silent, Match: status.Last}, m)
			require.LessOrEqual(t, m.Silent, TickInterval)
		}

		next := group[leader.loop.core.config.ID%3]
		leader.loop.Transfer(next.loop.core.config.ID)
		synctest.Wait()
		require.Zero(t, leader.tenureNow())
		require.NotZero(t, next.tenureNow())
		require.True(t, next.loop.Status().Leading)
		require.Equal(t, next.loop.core.config.ID, leader.loop.Status().Leader)
		id, err := leader.loop.Propose(first, []byte("late"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, Outcome{ID: id, Result: Dropped}, leader.ended()[100])

		// A leader that has lost its followers: its proposals are uncertain, its reads wait.
		next.mu.Lock()
		next.deaf = true
		next.mu.Unlock()
		_, err = next.loop.Propose(next.tenureNow(), []byte("alone"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, next.loop.Read(ctx), context.DeadlineExceeded)
		require.Equal(t, Uncertain, next.ended()[0].Result)
		require.Zero(t, next.tenureNow())
		require.EqualValues(t, 1, next.loop.Counts().Uncertain)
		require.EqualValues(t, 1, leader.loop.Counts().Dropped)
		require.True(t, next.loop.Status().Campaigns)

		waiting := make(chan error)
		go func() { waiting <- next.loop.Read(t.Context()) }()
		synctest.Wait()
		stop(t, group)
		require.ErrorIs(t, <-waiting, kv.ErrClosed)
		require.ErrorIs(t, next.loop.Read(t.Context()), kv.ErrClosed)
		_, err = next.loop.Propose(first, []byte("late"))
		require.ErrorIs(t, err, kv.ErrClosed)
		require.False(t, next.loop.Deliver(&pb.Message{}))
		next.loop.Transfer(1)
	})
}

// hold makes the next sync of a member wait until the returned function is called, and
// counts the syncs.
func (m *member) hold() (release func(), syncs func() int) {
	var mu sync.Mutex
	count, gate := 0, make(chan struct{})
	m.fs.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Sync {
			return faultfs.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		count++
		return faultfs.Fault{Delay: func() { <-gate }}
	}))
	return func() { close(gate) }, func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// What comes during a sync shares the next one.
func TestLoopBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		release, syncs := m.hold()
		for i := range 50 {
			_, err := m.loop.Propose(m.tenureNow(), []byte{byte(i)})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Equal(t, 1, syncs())
		require.Empty(t, m.ended())
		release()
		synctest.Wait()
		require.Equal(t, 2, syncs())
		require.Len(t, m.ended(), 50)
		require.Len(t, m.applied(), 50)
		stop(t, group)
	})
}

func TestLoopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		release, _ := m.hold()
		_, err := m.loop.Propose(m.tenureNow(), nil)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = m.loop.Propose(m.tenureNow(), make([]byte, 1))
		require.NoError(t, err)
		synctest.Wait() // it syncs
		_, err = m.loop.Propose(m.tenureNow(), make([]byte, MaxUncommittedBytes))
		require.ErrorIs(t, err, ErrNoRoom)

		heartbeat := message(pb.MsgHeartbeat, 2, 1, 1, 0, 0)
		for range maxMessages {
			require.True(t, m.loop.Deliver(heartbeat))
		}
		require.False(t, m.loop.Deliver(heartbeat))

		ctx, cancel := context.WithCancel(t.Context())
		m.loop.mu.Lock()
		for i := range uint64(maxWaitingReads - 1) {
			m.loop.waiting[1<<32+i] = waitingRead{answered: make(chan struct{})}
		}
		m.loop.mu.Unlock()
		gaveUp := make(chan error)
		go func() { gaveUp <- m.loop.Read(ctx) }()
		synctest.Wait()
		var overload *kv.OverloadError
		require.ErrorAs(t, m.loop.Read(t.Context()), &overload)
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)

		release()
		synctest.Wait()
		_, err = m.loop.Propose(m.tenureNow(), []byte("next"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []Result{Committed, Committed}, results(m.ended()))
		stop(t, group)
	})
}

func results(outcomes []Outcome) (r []Result) {
	for _, o := range outcomes {
		r = append(r, o.Result)
	}
	return r
}

// When the disk fails every proposal still gets its outcome, and every read an error.
func TestLoopEndsWithItsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		gate := make(chan struct{})
		m.fs.SetInjector(faultfs.At(0, true, faultfs.Fault{Err: syscall.EIO, Delay: func() { <-gate }}, faultfs.OnKind(faultfs.Sync)))
		var ids []uint64
		for range 3 {
			id, err := m.loop.Propose(m.tenureNow(), []byte("record"))
			require.NoError(t, err)
			ids = append(ids, id)
			synctest.Wait()
		}
		read := make(chan error)
		go func() { read <- m.loop.Read(t.Context()) }()
		synctest.Wait()
		close(gate)
		<-m.loop.Done()
		require.ErrorIs(t, m.loop.Err(), syscall.EIO)
		require.ErrorIs(t, <-read, kv.ErrFailed)
		require.Equal(t, []Result{Uncertain, Dropped, Dropped}, results(m.ended()))
		require.True(t, slices.EqualFunc(ids, m.ended(), func(id uint64, o Outcome) bool { return id == o.ID }))
		require.Zero(t, m.tenureNow())
		m.loop.Stop()
		require.ErrorIs(t, group[0].loop.Err(), kv.ErrFailed)
	})
}

// A proposal that is taken with a message that ends the Core is reported, after those before it.
func TestLoopEndsWithAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := startLoops(t, 3)
		release, _ := m.hold()
		term := m.tenureNow().Term
		for range 2 {
			_, err := m.loop.Propose(m.tenureNow(), []byte("record"))
			require.NoError(t, err)
			synctest.Wait()
		}
		id := m.loop.core.config.ID
		impossible := message(pb.MsgHeartbeat, id%3+1, id, term+1, 0, 0)
		impossible.Commit = new(uint64(100))
		require.True(t, m.loop.Deliver(impossible))
		release()
		<-m.loop.Done()
		require.ErrorContains(t, m.loop.Err(), "out of range")
		require.Equal(t, []Result{Uncertain, Dropped}, results(m.ended()))
		for _, other := range *m.group {
			other.loop.Stop()
		}
	})
}

// A proposal that comes while the Core ends is reported as well.
func TestLoopReportsWhatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		release, _ := m.hold()
		_, err := m.loop.Propose(m.tenureNow(), []byte("first"))
		require.NoError(t, err)
		synctest.Wait()
		_, err = m.loop.Propose(m.tenureNow(), []byte("second"))
		require.NoError(t, err)
		go m.loop.Stop()
		synctest.Wait()
		release()
		synctest.Wait()
		require.Equal(t, []Result{Committed, Dropped}, results(m.ended()))
		stop(t, group)
	})
}
