package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// leader lets time pass until a node is in a tenure, and returns it.
func (w *world) leader() *simNode {
	var leader *simNode
	w.settle(func() bool {
		for _, n := range w.nodes {
			if _, open := n.tenureNow(); open {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// follower returns a node that is not n.
func (w *world) follower(n *simNode) *simNode { return w.nodes[n.id%uint64(len(w.nodes))] }

// write proposes a record and waits for its outcome.
func (w *world) write(n *simNode) Outcome {
	n.numberRecord()
	id := w.nextID
	n.propose()
	w.settle(func() bool { return w.outcomes[id].Result != 0 })
	return w.outcomes[id]
}

// isolate cuts all links of a node.
func (w *world) isolate(n *simNode) {
	for _, m := range w.nodes {
		w.cut[[2]uint64{n.id, m.id}], w.cut[[2]uint64{m.id, n.id}] = true, true
	}
}

// reopen returns what a disk holds.
func (n *simNode) reopen(disk *vfs.Mem) *raftlog.Group {
	log, _, err := raftlog.Open(n.logOptions(disk, false))
	require.NoError(n.w.t, err)
	return log.Group(simGroup)
}

// C1: what a message depends on survives a power cut at the moment at which it is sent.
func TestNoMessageBeforeTheSync(t *testing.T) {
	w := newWorld(t, 1, 3)
	votes, acks := 0, 0
	w.onSend = func(n *simNode, m *pb.Message) {
		if m.GetReject() {
			return
		}
		switch m.GetType() {
		case pb.MsgVoteResp, pb.MsgVote:
			votes++
			hard, _, err := n.reopen(n.disk.CrashImage(vfs.DropAll, nil)).InitialState()
			require.NoError(t, err)
			require.Equal(t, m.GetTerm(), hard.GetTerm())
			if m.GetType() == pb.MsgVoteResp {
				require.Equal(t, m.GetTo(), hard.GetVote())
			}
		case pb.MsgAppResp:
			acks++
			last, err := n.reopen(n.disk.CrashImage(vfs.DropAll, nil)).LastIndex()
			require.NoError(t, err)
			require.GreaterOrEqual(t, last, m.GetIndex())
		}
	}
	n := w.leader()
	for range 5 {
		require.Equal(t, Committed, w.write(n).Result)
	}
	require.NotZero(t, votes)
	require.Greater(t, acks, 5)
}

// Entries leave a leader before it syncs them. If that fails, their outcome is uncertain, and the
// others go on with them.
func TestEntriesLeaveBeforeTheSync(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	require.Equal(t, Committed, w.write(n).Result)
	early := 0
	w.onSend = func(from *simNode, m *pb.Message) {
		if from != n || m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
			return
		}
		last, err := n.reopen(n.disk.CrashImage(vfs.DropAll, nil)).LastIndex()
		require.NoError(t, err)
		if newest := m.GetEntries()[len(m.GetEntries())-1]; last < newest.GetIndex() {
			early++
		}
	}
	require.Equal(t, Committed, w.write(n).Result)
	require.Equal(t, 2, early, "to both other nodes")

	n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Sync)))
	tenure, ok := n.core.Tenure()
	require.True(t, ok)
	require.NoError(t, n.core.Propose(tenure, 77, simRecord{77, 1, 3}.encode(0)))
	out, err := n.core.Process()
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, []Outcome{{ID: 77, Result: Uncertain}}, out.Outcomes)
	require.Equal(t, 4, early)
}

// C2: after a failed sync nothing leaves, not even a vote.
func TestNothingAfterAFailedSync(t *testing.T) {
	w := newWorld(t, 1, 3)
	n, other := w.nodes[0], w.nodes[1]
	n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Sync)))
	w.onSend = func(from *simNode, m *pb.Message) { require.NotEqual(t, n, from, "%v", m) }
	vote := message(pb.MsgVote, other.id, n.id, 7, 1, 1)
	require.NoError(t, n.core.Step(vote))
	_, err := n.core.Process()
	require.ErrorIs(t, err, kv.ErrFailed)
	require.ErrorIs(t, err, syscall.EIO)
	n.core.Tick()
	require.Equal(t, err, n.core.Step(proto.Clone(vote).(*pb.Message)))
	require.Equal(t, err, n.core.Propose(Tenure{}, 1, []byte("record")))
	require.Equal(t, err, n.core.Read(1))
	require.Equal(t, err, n.core.Compact(1, 0))
	require.Equal(t, err, n.core.Transfer(2))
	require.Equal(t, err, n.core.Err())
	_, again := n.core.Process()
	require.Equal(t, err, again)
}

// A write that replaces entries and is torn leaves the old ones: they are not committed, although
// the message that brought the new ones said that these are.
func TestTornReplacementCommitsNothing(t *testing.T) {
	for short := range 300 {
		w := newWorld(t, 1, 3)
		n := w.nodes[0]
		require.NoError(t, n.core.Step(message(pb.MsgApp, 2, 1, 2, 1, 1, entry(2, 2, pb.EntryNormal, encodeEntry(2, simRecord{1, 1, 2}.encode(0))))))
		n.process()
		n.fs.SetInjector(faultfs.At(0, true, faultfs.Fault{Err: syscall.EIO, Short: short}, faultfs.OnKind(faultfs.Write)))
		m := message(pb.MsgApp, 3, 1, 3, 1, 1, entry(2, 3, pb.EntryNormal, encodeEntry(3, simRecord{2, 1, 3}.encode(0))))
		m.Commit = new(uint64(2))
		require.NoError(t, n.core.Step(m))
		_, err := n.core.Process()
		require.ErrorIs(t, err, syscall.EIO)
		n.disk = n.disk.KillImage()
		n.start()
		require.Equal(t, uint64(1), n.core.Status().Committed, "%d bytes of the write", short)
		n.process()
		require.Empty(t, w.chosen)
	}
}

// message returns one that is right as far as checkMessage looks.
func message(kind pb.MessageType, from, to, term, index, logTerm uint64, entries ...*pb.Entry) *pb.Message {
	return &pb.Message{Type: &kind, From: &from, To: &to, Term: &term, Index: &index, LogTerm: &logTerm, Entries: entries}
}

func entry(index, term uint64, kind pb.EntryType, data []byte) *pb.Entry {
	return &pb.Entry{Index: &index, Term: &term, Type: &kind, Data: data}
}

func TestMessagesThatNoPeerSends(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.nodes[0]
	good := func() *pb.Message { return message(pb.MsgApp, 2, 1, 3, 1, 1, entry(2, 2, pb.EntryNormal, nil)) }
	for name, spoil := range map[string]func(*pb.Message){
		"a proposal":           func(m *pb.Message) { m.Type = pb.MsgProp.Enum() },
		"a local message":      func(m *pb.Message) { m.Type = pb.MsgHup.Enum() },
		"a snapshot":           func(m *pb.Message) { m.Type = pb.MsgSnap.Enum() },
		"for another node":     func(m *pb.Message) { m.To = new(uint64(2)) },
		"from this node":       func(m *pb.Message) { m.From = new(uint64(1)) },
		"from no node":         func(m *pb.Message) { m.From = nil },
		"no term":              func(m *pb.Message) { m.Term = nil },
		"a gap":                func(m *pb.Message) { m.Index = new(uint64(2)) },
		"a term that is lower": func(m *pb.Message) { m.LogTerm = new(uint64(3)) },
		"a term to come":       func(m *pb.Message) { m.Entries[0].Term = new(uint64(4)) },
		"a read with a term":   func(m *pb.Message) { m.Type = pb.MsgReadIndex.Enum() },
		"a short context": func(m *pb.Message) {
			m.Type, m.Entries, m.Context = pb.MsgHeartbeatResp.Enum(), nil, []byte("short")
		},
		"a read of nothing": func(m *pb.Message) { m.Type, m.Term, m.Entries = pb.MsgReadIndex.Enum(), nil, nil },
	} {
		m := good()
		spoil(m)
		require.ErrorIs(t, n.core.Step(m), kv.ErrInvalidArgument, name)
	}
	require.NoError(t, n.core.Step(message(pb.MsgHeartbeatResp, 9, 1, 1, 0, 0)), "a node that is no member")
	require.NoError(t, n.core.Step(good()))
	_, err := n.core.Process()
	require.NoError(t, err)
	require.Equal(t, uint64(2), must(n.log.Group(simGroup).LastIndex()))
}

// The answer of a node to a message of an earlier term of the same leader is no acknowledgement.
func TestAnswerToAnEarlierTerm(t *testing.T) {
	w := newWorld(t, 1, 3)
	peer := w.nodes[2]
	w.isolate(peer) // so that it has acknowledged nothing
	n := w.leader()
	before := n.core.node.Status().Progress[peer.id]
	require.NoError(t, n.core.Step(message(pb.MsgAppResp, peer.id, n.id, n.core.Status().Term, 0, 0)))
	require.Equal(t, before.Next, n.core.node.Status().Progress[peer.id].Next)
	later := message(pb.MsgAppResp, peer.id, n.id, n.core.Status().Term+1, 0, 0)
	require.NoError(t, n.core.Step(later))
	require.False(t, n.core.Status().Leading, "a later term ends that of the leader")
}

// No message makes the library panic in a way that does not end the Core with an error.
func FuzzStep(f *testing.F) {
	for _, m := range []*pb.Message{
		message(pb.MsgApp, 2, 1, 3, 1, 1, entry(2, 2, pb.EntryNormal, encodeEntry(2, []byte("x")))),
		message(pb.MsgAppResp, 2, 1, 2, 2, 0),
		message(pb.MsgHeartbeat, 2, 1, 3, 0, 0),
		{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(2)), Term: new(uint64(2)), Context: make([]byte, 8)},
		{Type: pb.MsgReadIndex.Enum(), From: new(uint64(2)), Entries: []*pb.Entry{{Data: []byte("context")}}},
		message(pb.MsgVote, 3, 1, 9, 5, 5),
		message(pb.MsgPreVoteResp, 3, 1, 9, 5, 5),
	} {
		f.Add(must(proto.Marshal(m)), true)
		f.Add(must(proto.Marshal(m)), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, leads bool) {
		m := &pb.Message{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		w := newWorld(t, 1, 3)
		n := w.nodes[0]
		if leads {
			if n = w.leader(); n.core.Read(1) != nil {
				t.Fatal("no read")
			}
		}
		n.core.config.Machine = anyMachine{}
		m.To = &n.id
		if n.core.Step(m) == nil {
			w.onSend = func(*simNode, *pb.Message) {}
			_, err := n.core.Process()
			require.Equal(t, err, n.core.Err())
		}
	})
}

// anyMachine applies anything.
type anyMachine struct{}

func (anyMachine) Apply(uint64, uint64, []byte) error { return nil }
func (anyMachine) Room() <-chan struct{}              { return nil }

func (anyMachine) Configure(uint64, uint64, *pb.ConfState, string) error { return nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A record that was numbered in another term than that of its entry is skipped.
func TestRecordOfAStaleTermIsSkipped(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.nodes[0]
	m := message(pb.MsgApp, 2, 1, 3, 1, 1,
		entry(2, 3, pb.EntryNormal, encodeEntry(2, simRecord{1, 1, 2}.encode(0))),
		entry(3, 3, pb.EntryNormal, encodeEntry(3, simRecord{2, 1, 3}.encode(0))))
	m.Commit = new(uint64(3))
	require.NoError(t, n.core.Step(m))
	_, err := n.core.Process()
	require.NoError(t, err)
	require.Zero(t, w.at[1])
	require.Equal(t, uint64(3), w.at[2])
	require.Equal(t, uint64(3), n.core.Status().Applied.Index)
}

// A leader is not in a tenure before it has applied an entry of its own term, and with it
// all before.
func TestANewLeaderAppliesFirst(t *testing.T) {
	w := newWorld(t, 1, 3)
	old := w.leader()
	w.onSend = func(n *simNode, m *pb.Message) {
		if m.GetType() == pb.MsgAppResp { // entries arrive, and nothing is committed
			w.isolate(n)
		}
	}
	old.numberRecord()
	old.propose()
	old.process()
	for range 2 {
		for len(w.net) > 0 {
			w.deliver(0)
		}
		w.follower(old).process()
	}
	w.onSend = nil
	next := w.follower(old)
	require.Equal(t, uint64(3), must(next.log.Group(simGroup).LastIndex()))
	require.Zero(t, w.at[w.nextID])
	clear(w.cut)
	old.crash()
	w.settle(func() bool {
		for _, n := range w.nodes {
			if n.core == nil {
				continue
			}
			if tenure, open := n.core.Tenure(); open {
				require.Equal(t, tenure.Term, n.core.Status().Applied.Term)
				require.Equal(t, next, n, "only one node has the record")
				require.NotZero(t, w.at[w.nextID])
				return true
			}
		}
		return false
	})
}

func TestTransfer(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	next := w.follower(n)
	require.Equal(t, &NotLeadingError{Node: next.id, Leader: n.id}, next.core.Transfer(n.id))
	require.ErrorIs(t, n.core.Transfer(n.id), kv.ErrInvalidArgument)
	require.ErrorIs(t, n.core.Transfer(9), kv.ErrInvalidArgument)
	first, open := n.core.Tenure()
	require.True(t, open)
	require.NoError(t, n.core.Transfer(next.id))
	_, open = n.core.Tenure()
	require.False(t, open)
	w.settle(func() bool { _, open := next.core.Tenure(); return open })
	require.Equal(t, Committed, w.write(next).Result)

	// The record of the old tenure ends as dropped.
	require.NoError(t, n.core.Propose(first, 1000, []byte("late")))
	n.reported = append(n.reported, 1000)
	n.process()
	require.Equal(t, Dropped, w.outcomes[1000].Result)
}

// If a transfer fails, what was proposed during it is dropped, and all that follows it, until
// another tenure begins in the same term.
func TestTransferThatFails(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	require.Equal(t, Committed, w.write(n).Result)
	deaf := w.follower(n)
	w.isolate(deaf)
	n.numberRecord()
	n.propose()
	pending := w.nextID
	require.NoError(t, n.core.Transfer(deaf.id))
	for range 2 {
		n.numberRecord()
	}
	n.propose()
	first, term := n.tenure, n.core.Status().Term
	w.settle(func() bool { tenure, open := n.core.Tenure(); return open && tenure != first })
	require.Equal(t, term, n.core.Status().Term)
	require.Equal(t, Tenure{Term: term, Number: first.Number + 1}, n.tenure)
	require.Equal(t, Committed, w.outcomes[pending].Result)
	require.Equal(t, Dropped, w.outcomes[pending+1].Result)
	require.Equal(t, Dropped, w.outcomes[pending+2].Result)
	require.Equal(t, Committed, w.write(n).Result)
}

// outvote makes a leader follow another node in a later term, with entries that replace what
// follows its index.
func (w *world) outvote(n *simNode, after, afterTerm, commit uint64, entries ...*pb.Entry) {
	m := message(pb.MsgApp, w.follower(n).id, n.id, n.core.Status().Term+1, after, afterTerm, entries...)
	m.Commit = &commit
	require.NoError(w.t, n.core.Step(m))
}

func TestOutcomes(t *testing.T) {
	setup := func(t *testing.T) (*world, *simNode, Position) {
		w := newWorld(t, 1, 3)
		n := w.leader()
		w.isolate(n)
		return w, n, n.core.Status().Applied
	}
	propose := func(n *simNode) uint64 {
		n.numberRecord()
		n.propose()
		return n.w.nextID
	}
	t.Run("uncertain: the entry was in the log when the term ended", func(t *testing.T) {
		w, n, at := setup(t)
		id := propose(n)
		n.process()
		w.outvote(n, at.Index, at.Term, at.Index)
		n.process()
		require.Equal(t, Outcome{ID: id, Result: Uncertain}, w.outcomes[id])
	})
	t.Run("dropped: the entry was replaced in memory", func(t *testing.T) {
		w, n, at := setup(t)
		id := propose(n)
		w.outvote(n, at.Index, at.Term, at.Index, entry(at.Index+1, at.Term+1, pb.EntryNormal, nil))
		n.process()
		require.Equal(t, Outcome{ID: id, Result: Dropped}, w.outcomes[id])
	})
	t.Run("uncertain: the term ended before the entry was written", func(t *testing.T) {
		w, n, at := setup(t)
		id := propose(n)
		w.outvote(n, at.Index, at.Term, at.Index)
		late := propose(n) // the Core does not know yet that its tenure is over
		_, open := n.core.Tenure()
		require.False(t, open)
		n.process()
		require.Equal(t, Uncertain, w.outcomes[id].Result)
		require.Equal(t, Dropped, w.outcomes[late].Result)
	})
	t.Run("dropped: another entry is committed in its place", func(t *testing.T) {
		w, n, at := setup(t)
		id := propose(n)
		n.process()
		w.outvote(n, at.Index, at.Term, at.Index+1, entry(at.Index+1, at.Term+1, pb.EntryNormal, nil))
		n.process()
		require.Equal(t, Dropped, w.outcomes[id].Result)
	})
	t.Run("uncertain, then dropped: the Core is stopped", func(t *testing.T) {
		_, n, _ := setup(t)
		id := propose(n)
		n.process()
		next := propose(n)
		n.core.Stop()
		out, err := n.core.Process()
		require.ErrorIs(t, err, kv.ErrClosed)
		require.Equal(t, []Outcome{{ID: id, Result: Uncertain}, {ID: next, Result: Dropped}}, out.Outcomes)
	})
	require.Equal(t, "committed dropped uncertain none none", fmt.Sprint(Committed, Dropped, Uncertain, Result(0), Result(9)))
}

func TestRecordsHaveABound(t *testing.T) {
	n := newWorld(t, 1, 3).leader()
	tenure, _ := n.core.Tenure()
	require.ErrorIs(t, n.core.Propose(tenure, 1, nil), kv.ErrInvalidArgument)
	require.ErrorIs(t, errRecordSize(MaxRecordBytes+1), kv.ErrInvalidArgument)
}

// A round without an answer is asked for again, with a context that was never used. An answer
// to an earlier round, or to an earlier life of the node, answers no later read.
func TestReadContextsAreUsedOnce(t *testing.T) {
	w := newWorld(t, 1, 3)
	leader := w.leader()
	n := w.follower(leader)
	used := map[string]bool{}
	var answers []*pb.Message
	w.onSend = func(_ *simNode, m *pb.Message) {
		switch m.GetType() {
		case pb.MsgReadIndex:
			c := string(m.GetEntries()[0].GetData())
			require.False(t, used[c], "context %x used twice", c)
			used[c] = true
		case pb.MsgReadIndexResp:
			answers = append(answers, proto.Clone(m).(*pb.Message))
		}
	}
	answered := func() bool { return len(n.reads) == 0 }
	n.read()
	w.settle(answered)
	require.Len(t, used, 1)

	// Two answers of the round, one of them late.
	late := answers[0]
	require.Equal(t, Committed, w.write(leader).Result)
	w.isolate(n)
	n.read()
	n.process()
	require.NoError(t, n.core.Step(proto.Clone(late).(*pb.Message)))
	n.process()
	require.NotEmpty(t, n.reads)
	require.Len(t, used, 2)
	for range readRetryTicks {
		n.core.Tick()
		n.process()
	}
	require.Len(t, used, 3)
	clear(w.cut)
	w.settle(answered)

	// The first round after a restart has the same counter.
	w.isolate(n)
	n.durable = *n.machine
	n.crash()
	n.start()
	n.read()
	n.core.node.TransferLeader(0) // no effect: the node does not lead
	require.NoError(t, n.core.Step(message(pb.MsgHeartbeat, leader.id, n.id, late.GetTerm(), 0, 0)))
	n.process()
	require.NoError(t, n.core.Step(proto.Clone(late).(*pb.Message)))
	require.NoError(t, n.core.Step(func() *pb.Message {
		m := proto.Clone(late).(*pb.Message)
		m.Entries[0].Data = []byte("not a context")
		return m
	}()))
	n.process()
	require.NotEmpty(t, n.reads)
	clear(w.cut)
	w.settle(answered)
}

// A deposed leader that does not know it answers no read.
func TestReadNeedsARound(t *testing.T) {
	w := newWorld(t, 1, 3)
	old := w.leader()
	w.isolate(old)
	old.paused = true
	var next *simNode
	for next == nil {
		for _, n := range w.nodes {
			if n == old {
				continue
			}
			n.core.Tick()
			n.process()
			for range len(w.net) {
				w.deliver(0)
			}
			if _, open := n.core.Tenure(); open {
				next = n
			}
		}
	}
	next.numberRecord()
	next.propose()
	for w.outcomes[w.nextID].Result == 0 {
		for _, n := range w.nodes {
			if n != old {
				n.process()
			}
		}
		for range len(w.net) {
			w.deliver(0)
		}
	}
	old.read()
	old.process()
	require.True(t, old.core.Status().Leading)
	require.NotEmpty(t, old.reads)
}

// refuses starts a node, which must not go on.
func (n *simNode) refuses(t *testing.T, start Position, what string) {
	n.refusesBefore(t, start, Position{}, what)
}

// refusesBefore is refuses of a node whose state machine has parts that are newer than the start.
func (n *simNode) refusesBefore(t *testing.T, start, newest Position, what string) {
	log, _, err := raftlog.Open(n.logOptions(n.disk.KillImage(), false))
	require.NoError(t, err)
	config := Config{ID: n.id, Boot: 99, Log: log, Group: simGroup, Start: start, Newest: newest, Machine: n.machine, Transport: n}
	_, err = New(config)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, what)
	require.NoError(t, log.Close())
	_, err = New(config)
	require.ErrorIs(t, err, kv.ErrClosed)
}

func TestStartThatDoesNotFitTheLog(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	begin := n.durable.at
	for range 3 {
		require.Equal(t, Committed, w.write(n).Result)
	}
	w.settle(func() bool { return w.follower(n).machine.at.Index == n.machine.at.Index })
	at := n.machine.at
	require.ErrorIs(t, n.core.Compact(at.Index+1, 0), kv.ErrInvalidArgument)
	w.settle(func() bool {
		require.NoError(t, n.core.Compact(at.Index-1, 0))
		return must(n.log.Group(simGroup).FirstIndex()) == at.Index
	})
	require.NoError(t, n.core.Compact(at.Index-1, 0), "a second time")

	n.refuses(t, begin, "the entries between are missing")
	n.refuses(t, Position{at.Index + 1, at.Term, at.Conf}, "it has lost entries")
	n.refuses(t, Position{at.Index, at.Term + 1, at.Conf}, "not of the same history")
	start := Position{at.Index - 1, at.Term, at.Conf}
	n.refusesBefore(t, start, Position{Index: at.Index + 1, Term: at.Term}, "it has lost entries")
	n.refusesBefore(t, start, Position{Index: at.Index, Term: at.Term + 1}, "not of the same history")

	n.durable = *n.machine
	n.disk = n.disk.CrashImage(vfs.DropAll, nil) // the commit index was not synced
	n.start()
	require.Equal(t, at.Index, n.core.Status().Committed)
}

func TestBootstrapNeedsAnEmptyLog(t *testing.T) {
	n := &simNode{id: 1, disk: vfs.NewMem()}
	log, _, err := raftlog.Open(n.logOptions(n.disk, true))
	require.NoError(t, err)
	_, err = Bootstrap(log, simGroup, nil)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = Bootstrap(log, simGroup, []uint64{1})
	require.NoError(t, err)
	_, err = Bootstrap(log, simGroup, []uint64{1})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.NoError(t, log.Close())
	_, err = Bootstrap(log, simGroup, []uint64{1})
	require.ErrorIs(t, err, kv.ErrClosed)
	for _, c := range []Config{
		{ID: 0, Start: Position{1, 1, &pb.ConfState{}}},
		{ID: raft.LocalAppendThread, Start: Position{1, 1, &pb.ConfState{}}},
		{ID: 1, Start: Position{1, 1, nil}},
	} {
		_, err = New(c)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
	}
}

// badMachine fails.
type badMachine struct{ *machine }

var errMachine = errors.New("no")

func (badMachine) Apply(uint64, uint64, []byte) error { return errMachine }

// C2: what ends a Core besides the disk.
func TestWhatEndsACore(t *testing.T) {
	commit := func(n *simNode, e *pb.Entry) error {
		m := message(pb.MsgApp, 2, 1, 3, 1, 1, e)
		m.Commit = new(uint64(2))
		require.NoError(t, n.core.Step(m))
		_, err := n.core.Process()
		require.ErrorIs(t, err, kv.ErrFailed)
		return err
	}
	record := encodeEntry(3, simRecord{1, 1, 3}.encode(0))
	t.Run("the state machine", func(t *testing.T) {
		n := newWorld(t, 1, 3).nodes[0]
		n.core.config.Machine = badMachine{n.machine}
		require.ErrorIs(t, commit(n, entry(2, 3, pb.EntryNormal, record)), errMachine)
	})
	t.Run("a later format", func(t *testing.T) {
		n := newWorld(t, 1, 3).nodes[0]
		require.ErrorIs(t, commit(n, entry(2, 3, pb.EntryNormal, []byte("later"))), kv.ErrUnsupportedVersion)
	})
	t.Run("configuration changes", func(t *testing.T) {
		for _, kind := range []pb.EntryType{pb.EntryConfChange, pb.EntryConfChangeV2} {
			n := newWorld(t, 1, 3).nodes[0]
			require.ErrorIs(t, commit(n, entry(2, 3, kind, []byte("\xff"))), kv.ErrCorrupt)
		}
		n := newWorld(t, 1, 3).nodes[0]
		var none []*pb.ConfChangeSingle
		for id := range uint64(3) {
			none = append(none, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(id + 1)})
		}
		data := must(proto.Marshal(&pb.ConfChangeV2{Changes: none, Transition: pb.ConfChangeTransitionJointExplicit.Enum()}))
		require.ErrorContains(t, commit(n, entry(2, 3, pb.EntryConfChangeV2, data)), "removed all voters")
	})
	t.Run("a commit index that the log has lost", func(t *testing.T) {
		n := newWorld(t, 1, 3).nodes[0]
		m := message(pb.MsgHeartbeat, 2, 1, 3, 0, 0)
		m.Commit = new(uint64(9))
		err := n.core.Step(m)
		require.ErrorIs(t, err, kv.ErrFailed)
		require.ErrorContains(t, err, "out of range")
	})
	t.Run("entries that cannot be read", func(t *testing.T) {
		w := newWorld(t, 1, 3)
		n := w.leader()
		behind := w.follower(n)
		w.isolate(behind)
		for range 30 { // more than the log keeps in memory
			require.Equal(t, Committed, w.write(n).Result)
		}
		clear(w.cut)
		n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Read)))
		w.settle(func() bool { return n.core == nil })
		require.Contains(t, w.history[len(w.history)-1], "input/output error")
	})
	t.Run("a bug", func(t *testing.T) {
		n := newWorld(t, 1, 3).nodes[0]
		require.Panics(t, func() { n.core.guard(func() error { none := []int{}; none[len(none)]++; return nil }) })
	})
}

// The messages of the library are dropped, but for those with which it gives up.
func TestLogger(t *testing.T) {
	var l raft.Logger = quietLogger{}
	l.Debug()
	l.Debugf("")
	l.Info()
	l.Infof("")
	l.Warning()
	l.Warningf("")
	l.Error()
	l.Errorf("")
	for _, f := range []func(){
		func() { l.Fatal("x 1") }, func() { l.Fatalf("x %d", 1) }, func() { l.Panic("x 1") }, func() { l.Panicf("x %d", 1) },
	} {
		require.PanicsWithError(t, "x 1", f)
	}
}

// A group whose first voter has a state begins above an empty one, and goes on with the records
// that are given, as committed.
func TestBootstrapWithAState(t *testing.T) {
	n := &simNode{id: 1, disk: vfs.NewMem()}
	require.NoError(t, n.disk.MkdirAll("data"))
	require.NoError(t, n.disk.SyncDir("/"))
	log, _, err := raftlog.Open(n.logOptions(n.disk, true))
	require.NoError(t, err)
	broken := errors.New("broken")
	records := [][]byte{[]byte("one"), bytes.Repeat([]byte("2"), fillBytes), []byte("three")}
	require.NoError(t, BootstrapWithState(log, simGroup, 1, func(add func([]byte) error) error {
		for _, r := range records {
			if err := add(r); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, log.Close())
	log, _, err = raftlog.Open(n.logOptions(n.disk.CrashImage(vfs.DropAll, nil), false))
	require.NoError(t, err)
	g := log.Group(simGroup)
	mark, err := g.Snapshot()
	require.NoError(t, err)
	require.EqualValues(t, StateIndex, mark.GetMetadata().GetIndex())
	require.Greater(t, StateIndex, BootstrapIndex)
	hard, _, err := g.InitialState()
	require.NoError(t, err)
	require.EqualValues(t, StateIndex+len(records), hard.GetCommit())
	entries, err := g.Entries(StateIndex+1, hard.GetCommit()+1, math.MaxUint64)
	require.NoError(t, err)
	require.Len(t, entries, len(records))
	for i, e := range entries {
		term, record, err := decodeEntry(e.GetData())
		require.NoError(t, err)
		require.Equal(t, e.GetTerm(), term)
		require.True(t, bytes.Equal(records[i], record))
	}
	require.ErrorIs(t, BootstrapWithState(log, simGroup, 1, nil), kv.ErrInvalidArgument)
	require.NoError(t, log.Close())

	n.disk = vfs.NewMem()
	log, _, err = raftlog.Open(n.logOptions(n.disk, true))
	require.NoError(t, err)
	require.ErrorIs(t, BootstrapWithState(log, simGroup, 1, func(func([]byte) error) error { return broken }), broken)
	require.NoError(t, log.Close())
}
