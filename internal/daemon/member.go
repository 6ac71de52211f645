package daemon

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
)

// A node of a cluster is ready if it can answer reads. To know that, it asks for a round as a
// read does, one probeEvery after the answer to the one before. It is not ready once a probe
// has waited for readsLate. Guessed: an election takes one to two seconds.
const (
	probeEvery = time.Second
	readsLate  = 3 * time.Second
)

// watchCluster logs which node leads, and whether this one can answer reads, whenever that
// changes, until close. The store is open.
func (s *process) watchCluster() {
	c := &s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.network == nil || c.closed {
		return
	}
	c.watched.Store(true)
	c.network.Answer(c.nodes.answer)
	c.running.Go(c.probe)
	c.running.Go(func() { s.tend(c.life, c.nodes) })
	c.running.Go(func() { c.nodes.follows.forget(c.life) })
	c.running.Go(func() {
		ticker := time.NewTicker(replica.TickInterval)
		defer ticker.Stop()
		var told replica.Status
		ready := false
		for {
			if now := c.log.Status(); now.Leader != told.Leader || now.Term != told.Term {
				if told = now; now.Leader == 0 {
					s.log.Info("no node leads the cluster, as far as this one knows", zap.Uint64("term", now.Term))
				} else {
					s.log.Info("leader of the cluster", zap.Uint64("node", now.Leader), zap.Uint64("term", now.Term), zap.Bool("this", now.Leading))
				}
			}
			if why := c.unready(); ready != (why == nil) {
				if ready = !ready; ready {
					s.log.Info("the node can answer reads")
				} else {
					s.log.Warn("the node cannot answer reads", zap.Error(why))
				}
				s.publishReady()
			}
			select {
			case <-ticker.C:
			case <-c.life.Done():
				return
			}
		}
	})
}

// probe asks for rounds until close.
func (c *clusterNode) probe() {
	for c.life.Err() == nil {
		c.asked.CompareAndSwap(nil, new(time.Now()))
		if c.log.Read(c.life) == nil {
			c.answered.Store(true)
			c.asked.Store(nil)
		}
		select {
		case <-time.After(probeEvery):
		case <-c.life.Done():
		}
	}
}

var errLeaderless = errors.New("no node leads, as far as this one knows: a majority of the nodes has to be up and connected; it answers no reads meanwhile")

// unready returns why a node of a cluster cannot answer reads; nil for any other store, and
// while the store is not open. It takes no lock: the goroutines that close waits for call it.
func (c *clusterNode) unready() error {
	if !c.watched.Load() {
		return nil
	}
	var waited time.Duration
	if asked := c.asked.Load(); asked != nil {
		waited = time.Since(*asked)
	}
	return whyUnready(c.log.Status(), c.answered.Load(), waited)
}

// whyUnready returns why a node cannot answer reads, whose oldest probe without an answer has
// waited so long.
func whyUnready(status replica.Status, answered bool, waited time.Duration) error {
	why := ""
	switch {
	case status.Leader == 0:
		return errLeaderless
	case !answered:
		why = "it has not caught up with the others since its start"
	case waited > readsLate:
		why = fmt.Sprintf("reads have waited for %v", waited.Round(time.Second))
	default:
		return nil
	}
	return fmt.Errorf("%s: this node has applied the log up to entry %d, and knows %d to be committed; node %d leads",
		why, status.Applied.Index, status.Committed, status.Leader)
}

// compared logs what a comparison of the states of the nodes has found.
func (s *process) compared(c replicated.Comparison) {
	fields := []zap.Field{zap.Uint64("version", uint64(c.Version)), zap.Uint64s("same", c.Same)}
	switch {
	case c.Unknown:
		s.log.Error("the states of nodes differ, and no majority tells which is right: each goes on; compare kvd digest of the nodes, and replace the wrong one",
			zap.Uint64("version", uint64(c.Version)), zap.Uint64s("differ", c.Differ))
	case len(c.Differ) > 0:
		s.log.Error("the state of a node differs from that of the majority: it stops", append(fields, zap.Uint64s("differ", c.Differ))...)
	default:
		s.log.Debug("the states of nodes are the same", fields...)
	}
}

// handedOver logs that this node hands the leadership over because of its disk.
func (s *process) handedOver(h replicated.HandOver) {
	if h.Err != nil {
		s.log.Error("this node should not lead, and the leadership could not be handed over; it tries again in a minute", zap.String("why", h.Why), zap.Error(h.Err))
		return
	}
	s.log.Warn("the leadership was handed over because of the disk", zap.String("why", h.Why), zap.Uint64("node", h.Leader))
}

// differences says which nodes differed in the last comparison of states; empty: none.
func (c *clusterNode) differences() string {
	last := c.log.Comparisons().Last
	switch {
	case len(last.Differ) == 0:
		return ""
	case last.Unknown:
		return fmt.Sprintf("; THE STATES OF NODES %v DIFFER at version %d, and no majority tells which is right", last.Differ, last.Version)
	}
	return fmt.Sprintf("; THE STATE OF NODES %v DIFFERS at version %d from that of the majority, %v", last.Differ, last.Version, last.Same)
}

// check returns which node leads and which others are connected, of a node of a cluster, or why
// it is not ready.
func (c *clusterNode) check() []admin.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.watched.Load() || c.closed {
		return nil
	}
	if why := c.unready(); why != nil {
		return []admin.Check{{Name: "cluster", Err: fmt.Errorf("%w%s", why, c.connections())}}
	}
	status := c.log.Status()
	note := fmt.Sprintf("node %d leads in term %d; this node has applied %d of %d entries", status.Leader, status.Term, status.Applied.Index, status.Committed)
	if status.Leading {
		note = fmt.Sprintf("this node leads in term %d", status.Term)
	}
	return []admin.Check{{Name: "cluster", Note: note + c.connections() + c.differences()}}
}

// connections says which other nodes are connected.
func (c *clusterNode) connections() (text string) {
	for _, p := range c.network.Status() {
		if p.Connected {
			text += fmt.Sprintf("; node %d is connected", p.Node)
		} else {
			text += fmt.Sprintf("; node %d at %s is not connected: %s", p.Node, p.Address, p.Why)
		}
	}
	return text
}

// member returns the figures of the node for the metrics.
func (c *clusterNode) member() (admin.Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.watched.Load() || c.closed {
		return admin.Member{}, false
	}
	status, counts, members := c.log.Status(), c.log.Counts(), c.log.Members()
	m := admin.Member{
		Role: roleOf(c.node, &status, members), Leader: status.Leader, Term: status.Term,
		Last: status.Last, Committed: status.Committed, Applied: status.Applied.Index, Rounds: counts.Rounds,
		Lags: map[uint64]uint64{}, NeedCheckpoints: map[uint64]bool{},
		Proposals: map[string]uint64{
			replica.Committed.String(): counts.Committed, replica.Dropped.String(): counts.Dropped, replica.Uncertain.String(): counts.Uncertain,
		},
		Elections: counts.Elections, LeaderChanges: counts.LeaderChanges, Tenures: counts.Tenures, Refused: c.network.Refused(),
	}
	m.HandOvers = c.log.HandOvers()
	compared := c.log.Comparisons()
	m.Comparisons = map[string]uint64{"same": compared.Same, "differ": compared.Differ}
	m.Compared, m.ComparedVersion = compared.At, uint64(compared.Last.Version)
	for _, other := range members {
		if status.Leading && other.ID != c.node {
			m.Lags[other.ID] = status.Last - min(other.Match, status.Last)
			m.NeedCheckpoints[other.ID] = other.NeedsCheckpoint
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
		SentFileBytes: p.SentFileBytes,
	}
	for _, l := range p.Lanes {
		figures.Lanes = append(figures.Lanes, admin.Lane{Name: l.Lane, QueuedBytes: l.QueuedBytes, Dropped: l.Dropped})
	}
	return figures
}
