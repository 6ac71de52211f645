package daemon

import (
	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
)

// member returns the figures of the node for the metrics.
func (c *clusterNode) member() (admin.Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.watched || c.closed {
		return admin.Member{}, false
	}
	status, counts, members := c.log.Status(), c.log.Counts(), c.log.Members()
	m := admin.Member{
		Role: roleOf(c.node, &status, members), Leader: status.Leader, Term: status.Term,
		Last: status.Last, Committed: status.Committed, Applied: status.Applied.Index, Lags: map[uint64]uint64{}, Rounds: counts.Rounds,
		Proposals: map[string]uint64{
			replica.Committed.String(): counts.Committed, replica.Dropped.String(): counts.Dropped, replica.Uncertain.String(): counts.Uncertain,
		},
		Elections: counts.Elections, LeaderChanges: counts.LeaderChanges, Tenures: counts.Tenures, Refused: c.network.Refused(),
	}
	for _, other := range members {
		if status.Leading && other.ID != c.node {
			m.Lags[other.ID] = status.Last - min(other.Match, status.Last)
		}
	}
	for _, p := range c.network.Status() {
		m.Peers = append(m.Peers, peerFigures(&p))
	}
	return m, true
}

// roleOf returns what a node is in its cluster: one of admin.Roles.
func roleOf(node uint64, status *replica.Status, members []replica.Member) string {
	switch {
	case status.Leading:
		return "leader"
	case status.Campaigns:
		return "candidate"
	}
	for i := range members {
		if members[i].ID == node && members[i].Learner {
			return "learner"
		}
	}
	return "follower"
}

func peerFigures(p *peer.Status) admin.Peer {
	figures := admin.Peer{
		Node: p.Node, Connected: p.Connected, Sent: p.Sent, SentBytes: p.SentBytes, Received: p.Received, NotTaken: p.NotTaken,
	}
	for _, l := range p.Lanes {
		figures.Lanes = append(figures.Lanes, admin.Lane{Name: l.Lane, QueuedBytes: l.QueuedBytes, Dropped: l.Dropped})
	}
	return figures
}
