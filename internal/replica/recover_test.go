package replica

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// A node that is left alone, for ever, becomes the only voter. It keeps all that is in its log,
// also what it did not know to be committed.
func TestRecoveryFromALostMajority(t *testing.T) {
	for name, prepare := range map[string]func(w *world, n *simNode){
		"as a voter":   func(*world, *simNode) {},
		"as a learner": func(w *world, n *simNode) { w.settled(w.leader(), Change{Demote, n.id}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 3)
			leader := w.leader()
			n := w.follower(leader)
			prepare(w, n)
			require.Equal(t, Committed, w.write(leader).Result)
			w.settle(func() bool { return n.machine.at.Index == leader.machine.at.Index })
			n.durable = *n.machine
			last := n.machine.at.Index
			for _, other := range w.nodes {
				if other != n {
					other.crash()
				}
			}
			n.core.Stop()
			_, err := n.core.Process()
			require.ErrorIs(t, err, kv.ErrClosed)

			_, err = PlanRecovery(n.log, simGroup, 9, n.durable.at, "")
			require.ErrorIs(t, err, kv.ErrInvalidArgument, "no member")
			r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "told")
			require.NoError(t, err)
			require.Equal(t, last, r.Last)
			require.Len(t, r.Others, 2)
			require.False(t, slices.Contains(r.Others, n.id))
			require.NoError(t, r.Recover(n.log, simGroup))
			again, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
			require.NoError(t, err)
			require.Empty(t, again.Others)
			require.Empty(t, again.entries, "nothing is left to do")

			n.crash()
			n.start()
			w.settle(func() bool { return n.core.Status().Leading })
			require.Equal(t, []uint64{n.id}, n.machine.at.Conf.GetVoters())
			require.Equal(t, "told", n.machine.info)
			require.Equal(t, Committed, w.write(n).Result)
		})
	}
}
