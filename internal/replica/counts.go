package replica

import (
	"sync/atomic"

	"go.etcd.io/raft/v3"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Counts says what a node has done in its group since it started.
type Counts struct {
	// Rounds is the distribution of the rounds of reads that the leader has confirmed, by how
	// many reads shared one.
	Rounds histogram.PowerCounts
	// Committed, Dropped and Uncertain are the proposals, by their outcomes.
	Committed, Dropped, Uncertain uint64
	// Elections are the times that the node, as it heard of no leader or was told to take over,
	// began to ask for votes; LeaderChanges those that it learned of a leader, and Tenures those
	// in which it took proposals.
	Elections, LeaderChanges, Tenures uint64
}

// counters is what a Core counts. Any goroutine may read it.
type counters struct {
	outcomes                          [Uncertain + 1]atomic.Uint64
	elections, leaderChanges, tenures atomic.Uint64
}

// Counts may be called at any time, from any goroutine.
func (c *Core) Counts() Counts {
	n := &c.counters
	return Counts{
		Rounds:    c.reads.rounds.Counts(),
		Committed: n.outcomes[Committed].Load(), Dropped: n.outcomes[Dropped].Load(), Uncertain: n.outcomes[Uncertain].Load(),
		Elections: n.elections.Load(), LeaderChanges: n.leaderChanges.Load(), Tenures: n.tenures.Load(),
	}
}

// becomes notes the role of the node.
func (c *Core) becomes(now raft.SoftState) {
	asks := func(s raft.StateType) bool { return s == raft.StatePreCandidate || s == raft.StateCandidate }
	if !asks(c.role.RaftState) && (asks(now.RaftState) || now.RaftState == raft.StateLeader && c.role.RaftState != raft.StateLeader) {
		c.counters.elections.Add(1)
	}
	if now.Lead != c.role.Lead && now.Lead != raft.None {
		c.counters.leaderChanges.Add(1)
	}
	c.role = now
}

// count notes how proposals ended, and how many tenures there were.
func (c *Core) count(outcomes []Outcome) {
	c.counters.tenures.Store(c.proposals.tenure.Number)
	for _, o := range outcomes {
		c.counters.outcomes[o.Result].Add(1)
	}
}
