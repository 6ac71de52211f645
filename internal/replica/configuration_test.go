package replica

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// settled makes a change and waits until it is applied on every node.
func (w *world) settled(n *simNode, changes ...Change) {
	w.t.Helper()
	require.NoError(w.t, n.core.Reconfigure(changes...))
	w.settle(func() bool {
		for _, m := range w.nodes {
			if m.core != nil && !Settled(m.core.Status().Applied.Conf, changes) {
				return false
			}
		}
		return true
	})
}

func TestReconfigure(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	other, third := w.follower(n), w.follower(w.follower(n))
	w.settled(n, Change{Demote, other.id})
	require.Equal(t, []uint64{other.id}, n.machine.at.Conf.GetLearners())
	require.NoError(t, n.core.Reconfigure(Change{Demote, other.id}), "already so")
	require.NoError(t, n.core.Reconfigure(Change{Remove, 9}), "already so")
	w.settled(n, Change{Promote, other.id})
	require.Len(t, n.machine.at.Conf.GetVoters(), 3)
	require.Equal(t, n.machine.at, n.core.Status().Applied)

	// Two changes at once, by joint consensus.
	require.NoError(t, n.core.Reconfigure(Change{Demote, other.id}, Change{Demote, third.id}))
	require.ErrorIs(t, n.core.Reconfigure(Change{Remove, 9}), ErrBusy, "another change is under way")
	require.ErrorIs(t, n.core.Transfer(third.id), ErrBusy)
	w.settle(func() bool { return Settled(n.machine.at.Conf, []Change{{Demote, other.id}, {Demote, third.id}}) })
	require.Equal(t, []uint64{n.id}, n.machine.at.Conf.GetVoters())
	require.Equal(t, Committed, w.write(n).Result)
	w.settled(n, Change{Promote, other.id}, Change{Promote, third.id})

	// A restart goes on from the configuration of the state machine.
	require.NoError(t, n.core.Reconfigure(Change{Remove, third.id}))
	w.settle(func() bool { return Settled(n.machine.at.Conf, []Change{{Remove, third.id}}) })
	require.NotContains(t, memberIDs(n.core.Members()), third.id)
	n.durable = *n.machine
	n.crash()
	n.start()
	require.Equal(t, n.durable.at, n.core.Status().Applied)
	require.NotContains(t, n.core.node.Status().Config.Voters.IDs(), third.id)
}

func memberIDs(members []Member) (ids []uint64) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestChangesThatAreRefused(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	other, third := w.follower(n), w.follower(w.follower(n))
	for what, c := range map[string]struct {
		changes []Change
		want    string
	}{
		"none":                 {nil, "no change"},
		"of no kind":           {[]Change{{0, 2}}, "0 is no kind of change"},
		"of a kind to come":    {[]Change{{Describe + 1, 2}}, "6 is no kind of change"},
		"of no node":           {[]Change{{AddLearner, 0}}, "no node can have this id"},
		"of a reserved id":     {[]Change{{AddLearner, raft.LocalAppendThread}}, "no node can have this id"},
		"twice the same node":  {[]Change{{AddLearner, 9}, {Promote, 9}}, "one after the other"},
		"a voter as a learner": {[]Change{{AddLearner, other.id}}, "to take its vote, demote it"},
		"promote a stranger":   {[]Change{{Promote, 9}}, "add it as a learner first"},
		"demote a stranger":    {[]Change{{Demote, 9}}, "it is no voter"},
	} {
		err := n.core.Reconfigure(c.changes...)
		require.ErrorIs(t, err, kv.ErrInvalidArgument, what)
		require.ErrorContains(t, err, c.want, what)
	}
	err := other.core.Reconfigure(Change{Remove, 9})
	require.Equal(t, &NotLeadingError{Node: other.id, Leader: n.id}, err)
	require.ErrorContains(t, err, "ask node")
	require.ErrorIs(t, err, kv.ErrNotLeader)
	require.ErrorContains(t, &NotLeadingError{Node: 1}, "knows no leader")

	// A learner that was never there, one that is far behind, and one that has caught up.
	w.settled(n, Change{Demote, other.id})
	w.settled(n, Change{AddLearner, 9})
	require.ErrorContains(t, n.core.Reconfigure(Change{Promote, 9}), "it does not answer")
	w.isolate(other)
	for range maxPromoteLag + 2 {
		n.numberRecord()
	}
	for len(n.queue) > 0 {
		n.propose()
		w.settle(func() bool { return len(n.reported) == 0 })
	}
	n.core.hear(other.id)
	require.ErrorContains(t, n.core.Reconfigure(Change{Promote, other.id}), "promote it when it has caught up")
	clear(w.cut)
	w.settle(func() bool { return n.core.lag(other.id) == 0 })
	w.settled(n, Change{Promote, other.id}, Change{Remove, 9})

	// A majority of those that would vote has to be there.
	w.isolate(third)
	for range electionTicks {
		w.settle(func() bool { return true })
	}
	require.ErrorContains(t, n.core.Transfer(third.id), "does not answer")
	require.ErrorContains(t, n.core.Reconfigure(Change{Demote, other.id}), "the group would stop")
	require.NoError(t, n.core.Reconfigure(Change{Remove, third.id}))
}

// A leader that is to give up its vote lets another node lead first.
func TestLeaderThatLeaves(t *testing.T) {
	for _, kind := range []ChangeKind{Demote, Remove} {
		w := newWorld(t, 1, 3)
		old := w.leader()
		err := old.core.Reconfigure(Change{kind, old.id})
		var elsewhere *NotLeadingError
		require.ErrorAs(t, err, &elsewhere)
		require.True(t, elsewhere.Leaving)
		require.ErrorContains(t, err, "it transfers the leadership")
		require.ErrorIs(t, old.core.Reconfigure(Change{kind, old.id}), ErrBusy)
		next := w.nodes[elsewhere.Leader-1]
		w.settle(func() bool { _, open := next.core.Tenure(); return open })
		require.NoError(t, next.core.Reconfigure(Change{kind, old.id}))
		w.settle(func() bool { return Settled(next.machine.at.Conf, []Change{{kind, old.id}}) })
		require.Equal(t, Committed, w.write(next).Result)
	}
	t.Run("alone", func(t *testing.T) {
		w := newWorld(t, 1, 3)
		n := w.leader()
		w.isolate(n)
		for id := range n.core.heard {
			n.core.heard[id] = 0
		}
		require.ErrorContains(t, n.core.Reconfigure(Change{Remove, n.id}), "no other voter answers")
		require.ErrorContains(t, n.core.Transfer(0), "no other voter answers")
	})
}

// What the library proposes for a member of an earlier version is applied likewise.
func TestConfigurationChangeOfTheFirstFormat(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	require.NoError(t, n.core.node.ProposeConfChange(&pb.ConfChange{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(7))}))
	w.settle(func() bool { return slices.Contains(n.machine.at.Conf.GetLearners(), 7) })
}

func TestMembers(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	w.isolate(w.follower(n))
	require.Equal(t, Committed, w.write(n).Result)
	for range electionTicks {
		w.settle(func() bool { return true })
	}
	last := n.machine.at.Index
	for _, m := range n.core.Members() {
		gone := m.ID == w.follower(n).id
		require.Equal(t, Member{ID: m.ID, Voter: true, Recent: !gone, Silent: m.Silent, Match: m.Match}, m)
		require.Equal(t, gone, m.Silent >= electionTicks*TickInterval, "node %d: %v", m.ID, m.Silent)
		require.Equal(t, gone, m.Match < last)
	}
	other := w.follower(w.follower(n))
	for _, m := range other.core.Members() {
		require.Equal(t, Member{ID: m.ID, Voter: true, Recent: m.ID == n.id || m.ID == other.id, Silent: m.Silent}, m)
	}
}

// What is told of a node with a change, or alone, comes to the state machine of every node.
func TestANodeIsDescribed(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	other := w.follower(n)
	told := func(info string) {
		w.settle(func() bool {
			return !slices.ContainsFunc(w.nodes, func(m *simNode) bool { return m.machine.info != info })
		})
		require.True(t, Settled(n.machine.at.Conf, nil))
	}
	before := n.machine.at.Conf
	require.NoError(t, n.core.ReconfigureWith("a voter", Change{Describe, other.id}))
	require.ErrorIs(t, n.core.ReconfigureWith("another", Change{Describe, n.id}), ErrBusy)
	told("a voter")
	require.Equal(t, before.GetVoters(), n.machine.at.Conf.GetVoters())
	require.NoError(t, n.core.ReconfigureWith("as a learner", Change{Demote, other.id}))
	told("as a learner")
	require.NoError(t, n.core.ReconfigureWith("a learner", Change{Describe, other.id}))
	told("a learner")
	require.Equal(t, []uint64{other.id}, n.machine.at.Conf.GetLearners())
	require.ErrorIs(t, n.core.ReconfigureWith("a stranger", Change{Describe, 9}), kv.ErrInvalidArgument)
}

// A node that has nothing of a log whose beginning is given up needs a checkpoint.
func TestANodeNeedsACheckpoint(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	gone := w.follower(n)
	w.isolate(gone)
	for range 3 {
		require.Equal(t, Committed, w.write(n).Result)
	}
	lacks := func() bool { return n.core.Members()[gone.id-1].NeedsCheckpoint }
	require.False(t, lacks())
	require.NoError(t, n.log.Compact(simGroup, n.machine.at.Index))
	require.True(t, lacks())
}

// If messages that came since the last Process ended the term, no change is proposed.
func TestChangeAfterTheTermEnded(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.leader()
	at := n.core.Status().Applied
	w.outvote(n, at.Index, at.Term, at.Index)
	require.Equal(t, &NotLeadingError{Node: n.id}, n.core.Reconfigure(Change{AddLearner, 9}))
	require.Error(t, n.core.Transfer(w.follower(n).id))
	n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Sync)))
	_, err := n.core.Process()
	require.Equal(t, err, n.core.Reconfigure(Change{AddLearner, 9}))
	require.Equal(t, err, n.core.Transfer(2))
}

func TestLoopReconfigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		id := leader.loop.core.config.ID
		other := group[id%3]
		require.NoError(t, leader.loop.Reconfigure(t.Context(), Change{Demote, other.loop.core.config.ID}))
		require.NoError(t, leader.loop.Reconfigure(t.Context(), Change{Demote, other.loop.core.config.ID}), "already so")
		members, err := leader.loop.Members(t.Context())
		require.NoError(t, err)
		require.Len(t, members, 3)
		require.True(t, members[id%3].Learner)
		require.ErrorIs(t, leader.loop.Reconfigure(t.Context()), kv.ErrInvalidArgument)
		describe := func() (string, []Change, error) { return "its address", []Change{{Describe, id}}, nil }
		require.NoError(t, leader.loop.ReconfigureBy(t.Context(), describe))
		refuse := func() (string, []Change, error) { return "", nil, kv.ErrTooLarge }
		require.ErrorIs(t, leader.loop.ReconfigureBy(t.Context(), refuse), kv.ErrTooLarge)

		to, err := leader.loop.TransferTo(t.Context(), 0)
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, group[to-1].loop.Status().Leading)
		var elsewhere *NotLeadingError
		_, err = leader.loop.TransferTo(t.Context(), 0)
		require.ErrorAs(t, err, &elsewhere)
		require.Equal(t, to, elsewhere.Leader)

		// The leader cannot reach the others, so the change is not applied.
		leader = group[to-1]
		leader.mu.Lock()
		leader.deaf = true
		leader.mu.Unlock()
		require.ErrorIs(t, leader.loop.ReconfigureBy(t.Context(), describe), kv.ErrUncertain)
		stop(t, group)
		require.ErrorIs(t, leader.loop.Reconfigure(t.Context(), Change{AddLearner, 9}), kv.ErrClosed)
		_, err = leader.loop.Members(t.Context())
		require.ErrorIs(t, err, kv.ErrClosed)
	})
}

// A leader adds a node, and is outvoted. The next leader gives the same id to another node, and that
// is committed when the first one hears of it. The first caller must not take the id for its own.
func TestAnIDOfTheNextLeaderIsNotThatOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		id, status := m.loop.core.config.ID, m.loop.Status()
		at, next := status.Applied, status.Term+1
		m.mu.Lock()
		m.deaf = true // the others elect another leader
		m.mu.Unlock()
		release, syncs := m.hold()
		added := make(chan error, 1)
		go func() { added <- m.loop.Reconfigure(t.Context(), Change{AddLearner, 9}) }()
		synctest.Wait()
		require.Equal(t, 1, syncs())
		v2 := &pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(9))}}}
		data, err := proto.Marshal(v2)
		require.NoError(t, err)
		outvoted := message(pb.MsgApp, id%3+1, id, next, at.Index, at.Term,
			entry(at.Index+1, next, pb.EntryNormal, nil), entry(at.Index+2, next, pb.EntryConfChangeV2, data))
		outvoted.Commit = new(at.Index + 2)
		require.True(t, m.loop.Deliver(outvoted))
		release()
		require.ErrorIs(t, <-added, kv.ErrUncertain)
		require.Contains(t, m.loop.Status().Applied.Conf.GetLearners(), uint64(9))
		stop(t, group)
	})
}

func TestLoopCallsAreBoundedAndEndWithTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		for _, other := range group {
			if other != m {
				other.loop.Stop() // nothing is committed any more
			}
		}
		ended := make(chan error, maxCalls+1)
		begun := time.Now()
		for i := range maxCalls {
			go func() { ended <- m.loop.Reconfigure(t.Context(), Change{AddLearner, uint64(10 + i)}) }()
		}
		synctest.Wait()
		require.Len(t, ended, maxCalls-1, "one change is under way, the others are refused")
		for range maxCalls - 1 {
			require.ErrorIs(t, <-ended, ErrBusy)
		}
		require.ErrorIs(t, <-ended, kv.ErrUncertain)
		require.Less(t, time.Since(begun), 3*electionTicks*TickInterval)

		release, _ := m.hold()
		m.loop.mu.Lock()
		m.loop.underway = maxCalls
		m.loop.mu.Unlock()
		var overload *kv.OverloadError
		_, err := m.loop.Members(t.Context())
		require.ErrorAs(t, err, &overload)
		m.loop.mu.Lock()
		m.loop.underway = 0
		m.loop.mu.Unlock()
		release()
		stop(t, group)
	})
}

func TestLoopTransferThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		id := m.loop.core.config.ID
		target := group[id%3]
		target.mu.Lock()
		target.deaf = true
		target.mu.Unlock()
		_, err := m.loop.TransferTo(t.Context(), target.loop.core.config.ID)
		require.ErrorIs(t, err, kv.ErrUncertain)
		require.ErrorContains(t, err, "leads again")
		require.True(t, m.loop.Status().Leading)
		require.Equal(t, m.tenureNow().Number, uint64(2))
		stop(t, group)
	})
}

// A leader that was elected in the middle of a change does not transfer the leadership before it has
// left the joint configuration: the library would drop its proposal to leave, and repeat it only with
// the next entry.
func TestNoTransferInAJointConfiguration(t *testing.T) {
	w := newWorld(t, 1, 5)
	former := w.leader()
	n := w.follower(former)
	demoted := []uint64{w.follower(n).id, w.follower(w.follower(n)).id}
	require.True(t, w.change(former, Change{Demote, demoted[0]}, Change{Demote, demoted[1]}))
	former.process()
	for !joint(n.core.applied.Conf) {
		require.NotEmpty(t, w.net)
		w.deliver(0)
		for _, m := range w.nodes {
			if m.dirty {
				m.process()
			}
		}
	}
	w.net = nil
	w.isolate(former)
	w.onSend = func(from *simNode, m *pb.Message) { // it leads, and nothing that it sends is acknowledged
		if from == n && m.GetType() == pb.MsgApp {
			w.isolate(n)
		}
	}
	for tick := 0; !n.core.Status().Leading; tick++ {
		require.Less(t, tick, 100)
		n.core.Tick()
		if tick < electionTicks { // the others do not ask for votes, and do not hold to the leader of before
			for _, m := range w.nodes {
				if m != n && m != former {
					m.core.Tick()
				}
			}
		}
		n.dirty = true
		for again := true; again; {
			again = false
			for _, m := range w.nodes {
				if m.dirty && m != former {
					m.process()
					again = true
				}
			}
			for len(w.net) > 0 {
				w.deliver(0)
				again = true
			}
		}
	}
	require.True(t, joint(n.core.applied.Conf))
	for _, m := range w.nodes {
		if m != n && m != former && n.core.recent(m.id) && slices.Contains(n.core.applied.Conf.GetVoters(), m.id) {
			require.ErrorIs(t, n.core.Transfer(m.id), ErrBusy)
			return
		}
	}
	require.Fail(t, "no voter answers")
}
