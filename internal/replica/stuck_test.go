package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
)

// loseEntries sets whether the entries that a member sends are lost, while all else comes through.
func (m *member) loseEntries(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loses = map[pb.MessageType]bool{pb.MsgApp: yes}
}

// The entries of a leader come to no other node, but its heartbeats do: another node takes over.
func TestALeaderWhoseEntriesAreLostGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		tenure := leader.tenureNow()
		leader.loseEntries(true)
		time.Sleep(2 * stuckTicks * TickInterval) // without entries it stays
		require.Equal(t, tenure, leader.tenureNow())
		_, err := leader.loop.Propose(tenure, []byte("record"))
		require.NoError(t, err)
		time.Sleep(stuckTicks * TickInterval / 2)
		require.Equal(t, tenure, leader.tenureNow())
		time.Sleep(stuckTicks*TickInterval/2 + 5*time.Second)
		synctest.Wait()
		require.Equal(t, []Result{Uncertain}, results(leader.ended()))
		var next *member
		for _, m := range group {
			if m != leader && m.tenureNow() != (Tenure{}) {
				next = m
			}
		}
		require.NotNil(t, next, "another node leads")
		_, err = next.loop.Propose(next.tenureNow(), []byte("next"))
		require.NoError(t, err)
		time.Sleep(time.Second) // a read waits for what is committed when it begins
		require.NoError(t, leader.loop.Read(t.Context()))
		require.Equal(t, []string{"next"}, leader.applied())
		stop(t, group)
	})
}

// It stays if the others could not elect a leader without it.
func TestALeaderWhoseEntriesAreLostStaysIfItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		tenure := leader.tenureNow()
		group[leader.loop.core.config.ID%3].listens(false)
		leader.loseEntries(true)
		_, err := leader.loop.Propose(tenure, []byte("record"))
		require.NoError(t, err)
		time.Sleep(2 * stuckTicks * TickInterval)
		require.Equal(t, tenure, leader.tenureNow())
		leader.loseEntries(false)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []Result{Committed}, results(leader.ended()))
		stop(t, group)
	})
}
