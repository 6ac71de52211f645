package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lagging returns a leader, a follower that lacks so many records and takes a millisecond to apply
// one, and another one that is cut off from now on, so that the leader needs the slow one.
func lagging(t *testing.T, records int) (group []*member, leader, slow, away *member) {
	group, leader = startLoops(t, 3)
	id := leader.loop.core.config.ID
	slow, away = group[id%3], group[(id+1)%3]
	slow.listens(false)
	for range records {
		_, err := leader.loop.Propose(leader.tenureNow(), []byte("record"))
		require.NoError(t, err)
	}
	synctest.Wait()
	require.Len(t, leader.ended(), records)
	slow.mu.Lock()
	slow.slow = time.Millisecond
	slow.mu.Unlock()
	slow.listens(true)
	away.listens(false)
	return group, leader, slow, away
}

// fill lets the state machine of a member have no room until giveRoom is called.
func (m *member) fill() (giveRoom func()) {
	room := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room = room
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.room, m.slow = nil, 0
		close(room)
	}
}

// A follower that applies for longer than an election timeout answers heartbeats meanwhile: the
// leader, which needs it, stays.
func TestAFollowerAnswersWhileItApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 5000
		group, leader, slow, _ := lagging(t, records)
		before := leader.tenureNow()
		for len(slow.applied()) < records {
			time.Sleep(TickInterval)
			synctest.Wait()
			require.Equal(t, before, leader.tenureNow(), "the leader stepped down when the follower had applied %d of %d records", len(slow.applied()), records)
		}
		require.NoError(t, leader.loop.Read(t.Context()))
		stop(t, group)
	})
}

// A follower that applies for long votes meanwhile.
func TestAFollowerVotesWhileItApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		group, leader, slow, away := lagging(t, records)
		time.Sleep(5 * TickInterval)
		leader.listens(false)
		away.listens(true)
		for away.tenureNow() == (Tenure{}) {
			time.Sleep(TickInterval)
			synctest.Wait()
			require.Less(t, len(slow.applied()), records, "no leader while the follower applies")
		}
		leader.listens(true)
		require.NoError(t, slow.loop.Read(t.Context()))
		require.Len(t, slow.applied(), records)
		stop(t, group)
	})
}

// A node whose state machine has no room votes, and does not ask for votes: it could begin no tenure.
// When there is room it goes on at once.
func TestANodeWithoutRoomVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader, full, away := lagging(t, 1000)
		giveRoom := full.fill()
		for range 100 { // the leader goes on
			_, err := leader.loop.Propose(leader.tenureNow(), []byte("record"))
			require.NoError(t, err)
			time.Sleep(TickInterval)
		}
		require.Len(t, leader.applied(), 1100)
		before := len(full.applied())
		require.Less(t, before, 1000)
		away.listens(true)
		time.Sleep(10 * TickInterval)
		leader.listens(false)
		term := full.loop.Status().Term
		for away.tenureNow() == (Tenure{}) {
			time.Sleep(TickInterval)
			synctest.Wait()
			require.False(t, full.loop.Status().Campaigns || full.loop.Status().Leading)
		}
		require.LessOrEqual(t, away.tenureNow().Term, term+3)

		away.listens(false) // no other node is left: it still does not ask for votes
		time.Sleep(100 * TickInterval)
		require.False(t, full.loop.Status().Campaigns)
		require.Zero(t, full.loop.Status().Leader)
		require.Len(t, full.applied(), before)
		away.listens(true)
		leader.listens(true)

		giveRoom()
		synctest.Wait()
		require.Len(t, full.applied(), 1100)
		require.NoError(t, full.loop.Read(t.Context()))
		stop(t, group)
	})
}

// A node without room is told to lead, and gets room long after the leader has given that up and
// leads on.
func TestAnOrderToLeadIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader, full, away := lagging(t, 1000)
		giveRoom := full.fill()
		away.listens(true)
		time.Sleep(10 * TickInterval)
		require.Less(t, len(full.applied()), 1000)
		leader.loop.Transfer(full.loop.core.config.ID)
		time.Sleep(100 * TickInterval)
		before := leader.tenureNow()
		require.NotZero(t, before)

		giveRoom()
		time.Sleep(100 * TickInterval)
		require.Len(t, full.applied(), 1000)
		require.Equal(t, before, leader.tenureNow())
		stop(t, group)
	})
}

// A log of many segments that is given up at once is deleted in parts, tick by tick.
func TestALongLogIsDeletedInParts(t *testing.T) {
	w := newWorld(t, 1, 1)
	n := w.leader()
	for range 400 {
		require.Equal(t, Committed, w.write(n).Result)
	}
	n.durable = *n.machine
	before := n.log.Stats().Segments
	require.Greater(t, before, 10)
	require.NoError(t, n.core.Compact(n.durable.at.Index, n.durable.at.Index))
	require.Greater(t, n.log.Stats().Segments, before/2)
	require.True(t, n.log.Reclaimable())
	for range before {
		n.core.Tick()
	}
	require.NoError(t, n.core.Err())
	require.False(t, n.log.Reclaimable())
	require.LessOrEqual(t, n.log.Stats().Segments, 2)
}
