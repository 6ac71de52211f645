package replica

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/raftlog"
)

// maxTokenBytes bounds what names a checkpoint in a message.
const maxTokenBytes = 1 << 10

// offerTicks after it was sent an offer counts as lost, if its receiver fetches nothing.
const offerTicks = 20

// ErrInstall ends a Core whose log begins at the position of a checkpoint that the state
// machine has not installed. The state machine installs it, and a new Core goes on from there.
var ErrInstall = errors.New("the node has received a checkpoint of another one, and has to be started again to install it")

// Checkpoints makes checkpoints of the state machine, serves them to other nodes, and fetches
// theirs. The Core calls it from Step, Tick and Process; no call blocks.
type Checkpoints interface {
	// Offer returns the position of a checkpoint and the token by which another node fetches
	// it. If there is none for which good holds, Offer begins to make one and returns false.
	Offer(good func(Position) bool) (at Position, token []byte, ok bool)
	// Sending reports whether a node fetches a checkpoint from this one. When it has ended
	// that, the owner calls Core.Sent.
	Sending(node uint64) bool
	// Fetch begins to fetch the checkpoint that a token names from a node, unless one is being
	// fetched already. When all of it is durable, the owner calls Core.Install.
	Fetch(from uint64, at Position, token []byte)
}

// offer is what the library asks for when a follower needs entries that the log has given up.
func (c *Core) offer() (*pb.Snapshot, error) {
	if c.config.Checkpoints == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	first, err := c.storage.FirstIndex()
	if err != nil {
		return nil, err
	}
	at, token, ok := c.config.Checkpoints.Offer(func(at Position) bool {
		return at.Index+1 >= first && at.Index <= c.applied.Index && includes(at.Conf, c.applied.Conf)
	})
	if !ok {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Data: token, Metadata: &pb.SnapshotMetadata{
		Index: &at.Index, Term: &at.Term, ConfState: proto.Clone(at.Conf).(*pb.ConfState),
	}}, nil
}

// includes reports whether a configuration has all nodes of another one: a node that is not in
// the configuration of a checkpoint cannot continue from it.
func includes(conf, other *pb.ConfState) bool {
	all := members(conf)
	for _, id := range members(other) {
		if !slices.Contains(all, id) {
			return false
		}
	}
	return true
}

// members returns the nodes of a configuration.
func members(conf *pb.ConfState) []uint64 {
	return slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext())
}

// offered takes the offer of a checkpoint. The library sees only one that this node does not
// need, and answers with what it has.
//
// guard calls it.
func (c *Core) offered(m *pb.Message) {
	at := positionOf(m.GetSnapshot())
	switch {
	case m.GetTerm() < c.node.BasicStatus().GetTerm(): // by a leader of the past
	case !c.lacks(at):
		_ = c.node.Step(m)
	case slices.Contains(members(at.Conf), c.config.ID):
		c.config.Checkpoints.Fetch(m.GetFrom(), at, m.GetSnapshot().GetData())
	}
}

func positionOf(s *pb.Snapshot) Position {
	m := s.GetMetadata()
	return Position{Index: m.GetIndex(), Term: m.GetTerm(), Conf: m.GetConfState()}
}

// lacks reports whether the log has not the entry of a position, which is committed. If it has,
// the entries up to there are the same, and those after it may count for a majority: they must
// stay. If it has another entry there, or none, then none from there on can be committed. guard
// calls it.
func (c *Core) lacks(at Position) bool {
	if at.Index <= c.node.BasicStatus().GetCommit() {
		return false
	}
	term, err := c.storage.Term(at.Index)
	return err != nil || term != at.Term
}

// Install lets the log begin at the position of a checkpoint that is durable on this node. With
// that the Core ends, with ErrInstall; nothing that it does later depends on the old state. It
// reports false, and does nothing, if this node has got the entries meanwhile or has ended.
func (c *Core) Install(at Position) bool {
	lacks := false
	c.guard(func() error { lacks = c.lacks(at); return nil })
	if c.err != nil || !lacks {
		return false
	}
	hard, _, err := c.storage.Group.InitialState()
	if err != nil {
		c.fail(err)
		return false
	}
	term, vote := hard.GetTerm(), hard.GetVote()
	if at.Term > term { // of which this node has heard nothing else yet
		term, vote = at.Term, raft.None
	}
	err = c.config.Log.Write(true, raftlog.Update{
		Group:     c.config.Group,
		Snapshot:  &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &at.Index, Term: &at.Term, ConfState: at.Conf}},
		HardState: &pb.HardState{Term: &term, Vote: &vote, Commit: &at.Index},
	})
	if err == nil {
		err = ErrInstall
	}
	c.fail(err)
	return errors.Is(err, ErrInstall)
}

// Sent says that a node has ended to fetch a checkpoint from this one: it has all of it, or not.
func (c *Core) Sent(node uint64, whole bool) {
	status := raft.SnapshotFailure
	if whole {
		status = raft.SnapshotFinish
	}
	delete(c.offers, node)
	c.guard(func() error { c.node.ReportSnapshot(node, status); return nil })
}

// loseOffers gives up the offers of checkpoints that no node has taken up: the library would
// wait for ever. The follower then gets another one.
func (c *Core) loseOffers() {
	if c.config.Checkpoints == nil {
		return
	}
	var lost []uint64
	c.guard(func() error {
		var waiting map[uint64]uint64 // nil in nearly every tick
		if c.node.BasicStatus().RaftState == raft.StateLeader {
			c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
				if p.State != tracker.StateSnapshot {
					return
				}
				since, known := c.offers[id]
				if !known || c.config.Checkpoints.Sending(id) {
					since = c.ticks
				}
				if waiting == nil {
					waiting = map[uint64]uint64{}
				}
				if waiting[id] = since; c.ticks >= since+offerTicks {
					lost = append(lost, id)
				}
			})
		}
		c.offers = waiting
		return nil
	})
	for _, id := range lost {
		c.Sent(id, false)
	}
}
