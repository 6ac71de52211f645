package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A follower was away while the configuration changed twice, and gets both changes, and that they are
// committed, at once. After a kill -9 it must not stand for election by the configuration of before:
// a majority of that, and one of the present configuration, may have no node in common.
func TestAConfigurationThatWasAppliedCountsAfterARestart(t *testing.T) {
	for name, changes := range map[string]func(a, b *simNode) [][]Change{
		"two changes": func(a, b *simNode) [][]Change { return [][]Change{{{Promote, a.id}}, {{Promote, b.id}}} },
		"joint":       func(a, b *simNode) [][]Change { return [][]Change{{{Promote, a.id}, {Promote, b.id}}} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 5)
			leader := w.leader()
			late := w.follower(leader)
			mate := w.follower(late)
			a := w.follower(mate)
			b := w.follower(a)
			w.settled(leader, Change{Demote, a.id}, Change{Demote, b.id}) // the voters are leader, late and mate
			for _, n := range w.nodes {
				n.durable = *n.machine
			}

			w.isolate(late)
			for _, c := range changes(a, b) {
				require.NoError(t, leader.core.Reconfigure(c...))
				w.settle(func() bool {
					return Settled(leader.core.Status().Applied.Conf, c) && mate.machine.at.Index == leader.machine.at.Index
				})
			}
			clear(w.cut)
			w.settle(func() bool { return late.machine.at.Index == leader.machine.at.Index })
			require.Len(t, late.machine.at.Conf.GetVoters(), 5)
			for range 50 { // five seconds, in which the cluster is idle
				w.settle(func() bool { return true })
			}
			applied := late.machine.at.Index

			late.core, late.disk = nil, late.disk.KillImage()
			hard, _, err := late.reopen(late.disk.KillImage()).InitialState()
			require.NoError(t, err)
			t.Logf("it had applied %d, and its disk says that %d is committed; its tables are at %d", applied, hard.GetCommit(), late.durable.at.Index)

			for _, n := range []*simNode{late, mate} {
				for _, m := range []*simNode{leader, a, b} {
					w.cut[[2]uint64{n.id, m.id}], w.cut[[2]uint64{m.id, n.id}] = true, true
				}
			}
			late.start()
			for range 3 {
				require.Equal(t, Committed, w.write(leader).Result)
			}
			for range 100 {
				w.settle(func() bool { return true })
				for _, n := range []*simNode{late, mate} {
					require.False(t, n.core.Status().Leading, "node %d leads in term %d by two votes of five, and node %d in term %d has acknowledged writes",
						n.id, n.core.Status().Term, leader.id, leader.core.Status().Term)
				}
			}
			clear(w.cut)
			w.heal()
		})
	}
}
