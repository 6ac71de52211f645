package replica

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
)

// deliverAll delivers messages that keep returns, and what follows from them.
func (w *world) deliverAll(keep func(*pb.Message) bool) {
	for {
		i := slices.IndexFunc(w.net, keep)
		if i < 0 {
			return
		}
		to := w.net[i].GetTo()
		w.deliver(i)
		w.nodes[to-1].processAll()
	}
}

// A leader and the node that is to lead are no majority of five. What only the two of them have when
// the transfer begins is acknowledged, not uncertain.
func TestATransferWaitsForWhatIsProposed(t *testing.T) {
	w := newWorld(t, 1, 5)
	old := w.leader()
	next := w.follower(old)
	require.Equal(t, Committed, w.write(old).Result)
	w.deliverAll(func(*pb.Message) bool { return true })
	old.numberRecord()
	old.propose()
	old.processAll()
	require.NoError(t, old.core.Transfer(next.id))
	_, open := old.core.Tenure()
	require.False(t, open)
	old.processAll()

	// The entry comes to the next leader alone, and its acknowledgement back; then whatever
	// leads to its election.
	w.deliverAll(func(m *pb.Message) bool {
		return m.GetTo() == next.id || m.GetFrom() == next.id && m.GetType() == pb.MsgAppResp
	})
	w.deliverAll(func(m *pb.Message) bool {
		return m.GetType() == pb.MsgTimeoutNow || m.GetType() == pb.MsgVote || m.GetType() == pb.MsgVoteResp
	})
	require.NotEqual(t, Uncertain.String(), w.outcomes[w.nextID].Result.String())
	require.True(t, old.core.Status().Leading)
	w.deliverAll(func(*pb.Message) bool { return true })
	require.Equal(t, Committed, w.outcomes[w.nextID].Result)
	w.settle(func() bool { _, open := next.core.Tenure(); return open })
}

// A transfer that waits for what nothing commits ends after an election timeout, and the tenure after
// it begins when that is committed.
func TestATransferThatWaitsInVain(t *testing.T) {
	w := newWorld(t, 1, 5)
	n := w.leader()
	next := w.follower(n)
	require.Equal(t, Committed, w.write(n).Result)
	w.deliverAll(func(*pb.Message) bool { return true })
	first, _ := n.core.Tenure()
	n.numberRecord()
	n.propose()
	for range electionTicks {
		require.NoError(t, n.core.Transfer(next.id), "the same again does not make it longer")
		n.core.Tick()
		n.processAll()
		w.deliverAll(func(m *pb.Message) bool { return m.GetType() == pb.MsgHeartbeat || m.GetType() == pb.MsgHeartbeatResp })
		for _, m := range w.net {
			require.Equal(t, pb.MsgApp, m.GetType())
		}
		w.net = nil
		_, open := n.core.Tenure()
		require.False(t, open)
		require.ErrorIs(t, n.core.Reconfigure(Change{AddLearner, 9}), ErrBusy)
	}
	require.Zero(t, n.core.handing)
	w.settle(func() bool { tenure, open := n.core.Tenure(); return open && tenure != first })
	require.Equal(t, Tenure{Term: first.Term, Number: first.Number + 1}, n.tenure)
	require.Equal(t, Committed, w.outcomes[w.nextID].Result)
	require.Equal(t, Committed, w.write(n).Result)
}

// The proposer hears of a transfer before the loop waits for its disk: what it proposed until then is
// committed, and what it would have proposed since then has done nothing.
func TestAProposerHearsOfATransferAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		tenure := m.tenureNow()
		release, syncs := m.hold()
		_, err := m.loop.Propose(tenure, []byte("first"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, syncs())
		_, err = m.loop.Propose(tenure, []byte("second"))
		require.NoError(t, err)
		_ = m.loop.post(&call{ended: make(chan error, 1), begin: func(c *Core) error {
			_, err := m.loop.Propose(tenure, []byte("third")) // after the loop has taken what came before
			require.NoError(t, err)
			return c.Transfer(c.config.ID%3 + 1)
		}})
		release()
		release, syncs = m.hold()
		synctest.Wait()
		require.Equal(t, 1, syncs())
		require.Zero(t, m.tenureNow())
		release()
		time.Sleep(TickInterval)
		synctest.Wait()
		require.False(t, m.loop.Status().Leading)
		require.Len(t, m.ended(), 3)
		for _, o := range m.ended() {
			require.Equal(t, Committed, o.Result)
		}
		stop(t, group)
	})
}
