package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// stuckTicks after the last sign that its entries come to another node, a leader with entries that are
// not committed gives up. It is longer than the largest record takes on a slow network.
const stuckTicks = 300

// advance is what a leader knows of how its entries come to the others.
type advance struct {
	committed, matched uint64 // index, and the sum of those of the others
	since              uint64 // in ticks; the last change
	silent             bool   // it gives up
}

// giveUpIfStuck lets a leader fall silent whose entries come to no other node, although heartbeats do,
// as on a path that loses long messages: it would lead for ever, and commit nothing. It neither sends
// nor hears heartbeats from then on, so that it steps down and the others elect a leader. It goes on if
// they are no majority without it, or a node fetches a checkpoint. It is called in each tick.
func (c *Core) giveUpIfStuck() {
	a, conf := &c.advance, c.applied.Conf
	answer := 0
	for _, id := range conf.GetVoters() {
		if id != c.config.ID && c.recent(id) {
			answer++
		}
	}
	c.guard(func() error {
		status := c.node.BasicStatus()
		if status.RaftState != raft.StateLeader {
			*a = advance{since: c.ticks}
			return nil
		}
		last, err := c.storage.LastIndex()
		if err != nil {
			return err
		}
		matched, moves := uint64(0), last == status.GetCommit() || 2*answer <= len(conf.GetVoters()) || joint(conf)
		c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			if id != c.config.ID {
				matched += p.Match
				moves = moves || p.State == tracker.StateSnapshot
			}
		})
		if moves || status.GetCommit() != a.committed || matched != a.matched {
			*a = advance{committed: status.GetCommit(), matched: matched, since: c.ticks, silent: a.silent}
		}
		a.silent = a.silent || c.ticks >= a.since+stuckTicks
		return nil
	})
}

// ofALeader are the kinds of messages that a leader which gives up neither sends nor hears.
var ofALeader = []pb.MessageType{pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgApp, pb.MsgAppResp}

// loses reports whether a message is lost, as this leader gives up.
func (c *Core) loses(m *pb.Message) bool {
	return c.advance.silent && slices.Contains(ofALeader, m.GetType())
}
