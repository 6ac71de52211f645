package replica

import "go.etcd.io/raft/v3"

const (
	// silentTicks after the process of the leader seems to have ended, without a message of it,
	// a follower acts on that. A leader that runs sends one in every tick.
	silentTicks = 2
	// turnTicks lie between the moments at which followers ask for votes, so that they do not all
	// ask at once, and split the votes: more than the ticks of two nodes can differ.
	turnTicks = 2
)

// doubt is about a leader whose process seems to have ended. The zero doubt is none.
type doubt struct {
	leader, term uint64
	since        uint64 // in ticks
}

// Gone says that the process of a node seems to have ended: a connection with it was closed, and
// another one cannot be made. It need not be true. See "A leader that is missed" in the package
// comment.
func (c *Core) Gone(node uint64) {
	if node == raft.None || node != c.role.Lead || c.role.RaftState != raft.StateFollower || c.doubt.leader == node {
		return
	}
	c.doubt = doubt{leader: node, term: c.term, since: c.ticks}
}

// pursue acts on a doubt, if the leader was silent meanwhile: see hear. It is called in each tick.
func (c *Core) pursue() {
	if c.doubt.leader == raft.None {
		return
	}
	c.guard(func() error {
		d, now := c.doubt, c.node.BasicStatus()
		if now.GetTerm() != d.term || now.RaftState != raft.StateFollower || now.Lead != d.leader && now.Lead != raft.None {
			c.doubt = doubt{} // another node was quicker, or silence was
			return nil
		}
		switch waited := c.ticks - d.since; {
		case waited == silentTicks:
			_ = c.node.ForgetLeader() // neither call fails
		case waited > silentTicks+turnTicks*c.before(d.leader):
			c.doubt = doubt{}
			_ = c.node.Campaign() // without effect on a node that has no vote
		}
		return nil
	})
}

// before returns how many voters come before this node when the leader is gone.
func (c *Core) before(leader uint64) (n uint64) {
	for _, id := range c.applied.Conf.GetVoters() {
		if id < c.config.ID && id != leader {
			n++
		}
	}
	return n
}
