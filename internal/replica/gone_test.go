package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// gone tells all nodes but one that its process has ended.
func (w *world) gone(of *simNode) {
	for _, n := range w.nodes {
		if n != of && n.core != nil {
			n.core.Gone(of.id)
		}
	}
}

// pass lets ticks pass.
func (w *world) pass(ticks int) {
	w.settle(func() bool { ticks--; return ticks == 0 })
}

// ticksToALeader returns after how many ticks a node is in a tenure.
func (w *world) ticksToALeader() (ticks int, leader *simNode) {
	w.settle(func() bool {
		ticks++
		for _, n := range w.nodes {
			if _, open := n.tenureNow(); open {
				leader = n
			}
		}
		return leader != nil
	})
	return ticks, leader
}

// A leader whose process has ended is missed long before its silence would tell, and its followers
// do not ask for votes at the same time.
func TestALeaderWhoseProcessEndedIsMissedSoon(t *testing.T) {
	for _, size := range []int{3, 5} {
		for seed := range uint64(10) {
			w := newWorld(t, seed, size)
			old := w.leader()
			require.Equal(t, Committed, w.write(old).Result)
			w.pass(2)
			old.crash()
			w.gone(old)
			first := w.nodes[0]
			if first == old {
				first = w.nodes[1]
			}
			ticks, next := w.ticksToALeader()
			require.Equal(t, silentTicks+1, ticks)
			require.Equal(t, first, next)
			require.Equal(t, Committed, w.write(next).Result)
			old.start()
			w.pass(2)
			require.Equal(t, next.id, old.core.Status().Leader)
		}
	}
}

// If the first follower lacks entries, the next one leads.
func TestTheNextFollowerLeadsIfTheFirstLacksEntries(t *testing.T) {
	w := newWorld(t, 3, 3)
	old := w.leader()
	var rest []*simNode
	for _, n := range w.nodes {
		if n != old {
			rest = append(rest, n)
		}
	}
	w.cut[[2]uint64{old.id, rest[0].id}] = true
	old.numberRecord()
	old.propose()
	old.process()
	for len(w.net) > 0 {
		w.deliver(0)
	}
	rest[1].process()
	clear(w.cut)
	w.net = nil
	old.crash()
	w.gone(old)
	ticks, next := w.ticksToALeader()
	require.Equal(t, silentTicks+turnTicks+1, ticks)
	require.Equal(t, rest[1], next)
}

// A leader that is heard stays, although all followers were told that its process has ended; and one
// that one follower alone misses.
func TestALeaderThatRunsStays(t *testing.T) {
	w := newWorld(t, 4, 3)
	leader := w.leader()
	w.pass(2)
	term := leader.core.Status().Term
	stays := func() {
		for range 3 * electionTicks {
			w.pass(1)
			require.True(t, leader.core.Status().Leading)
			require.Equal(t, term, leader.core.Status().Term)
		}
	}
	w.gone(leader)
	stays()
	for _, n := range w.nodes {
		require.Equal(t, leader.id, n.core.Status().Leader)
		require.Zero(t, n.core.doubt)
	}

	alone := w.follower(leader)
	w.cut[[2]uint64{leader.id, alone.id}], w.cut[[2]uint64{alone.id, leader.id}] = true, true
	alone.core.Gone(leader.id)
	w.pass(silentTicks)
	require.Zero(t, alone.core.Status().Leader)
	stays()
	clear(w.cut)
	w.pass(2)
	require.Equal(t, leader.id, alone.core.Status().Leader)
	stays()
}

// What is said of others than the leader, or to the leader, means nothing; nor does a doubt in which
// another node has led since.
func TestDoubtsThatMeanNothing(t *testing.T) {
	w := newWorld(t, 5, 3)
	leader := w.leader()
	w.pass(2)
	follower := w.follower(leader)
	third := w.nodes[6-leader.id-follower.id-1]
	leader.core.Gone(leader.id)
	leader.core.Gone(follower.id)
	follower.core.Gone(third.id)
	follower.core.Gone(0)
	require.Zero(t, leader.core.doubt)
	require.Zero(t, follower.core.doubt)

	w.cut[[2]uint64{leader.id, follower.id}] = true
	follower.core.Gone(leader.id)
	require.NotZero(t, follower.core.doubt)
	require.NoError(t, leader.core.Transfer(third.id))
	w.settle(func() bool { return third.core.Status().Leading })
	w.pass(silentTicks + 2*turnTicks)
	require.Zero(t, follower.core.doubt)
	require.True(t, third.core.Status().Leading)
	require.Equal(t, third.id, follower.core.Status().Leader)
}
