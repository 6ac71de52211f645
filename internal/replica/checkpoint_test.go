package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// behind returns the leader and a follower that lacks entries which the leader has given up.
func behind(w *world) (leader, follower *simNode) {
	leader = w.leader()
	follower = w.follower(leader)
	follower.crash()
	for range 5 {
		require.Equal(w.t, Committed, w.write(leader).Result)
	}
	leader.durable = *leader.machine
	require.NoError(w.t, leader.core.Compact(leader.machine.at.Index, leader.machine.at.Index))
	require.Equal(w.t, leader.machine.at.Index+1, must(leader.log.Group(simGroup).FirstIndex()))
	follower.start()
	return leader, follower
}

func TestAFollowerThatLagsGetsACheckpoint(t *testing.T) {
	w := newWorld(t, 1, 3)
	leader, follower := behind(w)
	term := follower.core.Status().Term
	w.settle(func() bool { return follower.core != nil && follower.machine.at.Index == leader.machine.at.Index })
	require.Equal(t, 1, w.counts.Installed)
	require.GreaterOrEqual(t, follower.core.Status().Term, term)
	require.Equal(t, Committed, w.write(leader).Result)
	w.heal()
}

// The offer, or the transfer, is lost again and again. The leader offers the checkpoint until it
// is there.
func TestAnOfferThatIsLostIsMadeAgain(t *testing.T) {
	w := newWorld(t, 1, 3)
	leader, follower := behind(w)
	lost := 0
	w.settle(func() bool {
		if follower.core != nil && follower.fetches != nil && lost < 3 {
			follower.fetches = nil
			lost++
		}
		return follower.core != nil && follower.machine.at.Index == leader.machine.at.Index
	})
	require.Equal(t, 3, lost)
	require.Equal(t, 1, w.counts.Installed)
}

// A node without Checkpoints refuses offers, and makes none.
func TestOffersWithoutCheckpoints(t *testing.T) {
	w := newWorld(t, 1, 3)
	leader, follower := behind(w)
	leader.core.config.Checkpoints = nil
	for range 5 * offerTicks {
		for _, n := range w.nodes {
			n.core.Tick()
			n.process()
		}
		for len(w.net) > 0 {
			w.deliver(0)
		}
	}
	require.Zero(t, w.counts.Offers)
	follower.core.config.Checkpoints = nil
	require.Error(t, follower.core.Step(offerOf(follower, Position{Index: 90, Term: 1, Conf: follower.machine.at.Conf})))
}

// offerOf returns an offer to a node, by another one that leads in its term.
func offerOf(n *simNode, at Position) *pb.Message {
	from := n.id%uint64(len(n.w.nodes)) + 1
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: &from, To: &n.id, Term: new(n.core.Status().Term),
		Snapshot: &pb.Snapshot{Data: []byte("token"), Metadata: &pb.SnapshotMetadata{Index: &at.Index, Term: &at.Term, ConfState: at.Conf}},
	}
}

// A node acknowledges an entry and does not know yet that it is committed. A checkpoint up to
// there does not take it from the log: it may count for a majority, and so may those after it.
func TestACheckpointDoesNotReplaceWhatWasAcknowledged(t *testing.T) {
	w := newWorld(t, 1, 3)
	leader := w.leader()
	n := w.follower(leader)
	leader.numberRecord()
	leader.propose()
	leader.process()
	for i := 0; i < len(w.net); {
		if w.net[i].GetTo() == n.id {
			w.deliver(i)
		} else {
			i++
		}
	}
	n.process()
	g := n.log.Group(simGroup)
	last := must(g.LastIndex())
	require.Greater(t, last, n.core.Status().Committed)
	conf := n.core.Status().Applied.Conf
	at := Position{Index: last, Term: must(g.Term(last)), Conf: conf}
	require.False(t, n.core.Install(at))
	require.NoError(t, n.core.Err())
	require.NoError(t, n.core.Step(offerOf(n, at)))
	require.Nil(t, n.fetches)
	n.process()
	require.Equal(t, last, n.core.Status().Committed, "it is committed")
	require.Equal(t, last, must(g.LastIndex()))
	require.False(t, n.core.Install(Position{Index: last - 1, Term: at.Term, Conf: conf}), "it is applied")
	w.heal()
}

func TestOffersThatAreNotTaken(t *testing.T) {
	w := newWorld(t, 1, 3)
	n := w.follower(w.leader())
	status := n.core.Status()
	at := Position{Index: status.Committed + 50, Term: status.Term, Conf: status.Applied.Conf}
	past := offerOf(n, Position{Index: at.Index, Term: 1, Conf: at.Conf})
	past.Term = new(status.Term - 1)
	require.NoError(t, n.core.Step(past))
	require.Nil(t, n.fetches, "the leader of an earlier term")
	require.NoError(t, n.core.Step(offerOf(n, Position{Index: at.Index, Term: at.Term, Conf: &pb.ConfState{Voters: []uint64{77}}})))
	require.Nil(t, n.fetches, "a configuration without this node")
	for what, change := range map[string]func(*pb.Message){
		"no snapshot":       func(m *pb.Message) { m.Snapshot = nil },
		"no token":          func(m *pb.Message) { m.Snapshot.Data = nil },
		"a long token":      func(m *pb.Message) { m.Snapshot.Data = make([]byte, maxTokenBytes+1) },
		"no voters":         func(m *pb.Message) { m.Snapshot.Metadata.ConfState = &pb.ConfState{Learners: []uint64{n.id}} },
		"a term to come":    func(m *pb.Message) { m.Snapshot.Metadata.Term = new(m.GetTerm() + 1) },
		"the term of none":  func(m *pb.Message) { m.Snapshot.Metadata.Term = new(uint64(0)) },
		"the index of none": func(m *pb.Message) { m.Snapshot.Metadata.Index = new(uint64(0)) },
	} {
		m := proto.Clone(offerOf(n, at)).(*pb.Message)
		change(m)
		require.Error(t, n.core.Step(m), what)
	}
	require.Nil(t, n.fetches)
	require.NoError(t, n.core.Step(offerOf(n, at)))
	require.NotNil(t, n.fetches)
}

// The log begins anew: the term and the vote stay, unless the checkpoint is of a later term.
func TestInstallKeepsTheVote(t *testing.T) {
	for _, later := range []uint64{0, 3} {
		w := newWorld(t, 1, 3)
		n := w.follower(w.leader())
		before, _, err := n.log.Group(simGroup).InitialState()
		require.NoError(t, err)
		at := Position{Index: 99, Term: before.GetTerm() + later, Conf: n.core.Status().Applied.Conf}
		require.True(t, n.core.Install(at))
		require.ErrorIs(t, n.core.Err(), ErrInstall)
		require.False(t, n.core.Install(at), "it has ended")
		g := n.log.Group(simGroup)
		after, conf, err := g.InitialState()
		require.NoError(t, err)
		require.Equal(t, at.Term, after.GetTerm())
		require.Equal(t, at.Index, after.GetCommit())
		require.Equal(t, at.Conf.GetVoters(), conf.GetVoters())
		require.Equal(t, at.Index, must(g.LastIndex()))
		if later == 0 {
			require.Equal(t, before.GetVote(), after.GetVote())
		} else {
			require.Zero(t, after.GetVote())
		}
	}
}

// A checkpoint is good only for nodes that are in its configuration.
func TestACheckpointHasTheNodesOfTheConfiguration(t *testing.T) {
	all := &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}, VotersOutgoing: []uint64{4}}
	require.True(t, includes(all, &pb.ConfState{Voters: []uint64{3, 4}}))
	require.False(t, includes(all, &pb.ConfState{Voters: []uint64{1}, Learners: []uint64{5}}))
}
