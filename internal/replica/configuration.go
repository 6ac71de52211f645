package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/kvd-db/kvd/internal/kv"
)

// maxPromoteLag is how many entries a learner may lack when it becomes a voter: a second's
// worth or so. A voter that lacks more could not help to commit.
const maxPromoteLag = 1000

// ChangeKind is what happens to a node. The zero ChangeKind is none.
type ChangeKind uint8

// The kinds of changes.
const (
	// AddLearner adds a node that gets all entries and has no vote. Its id was never used
	// by another node.
	AddLearner ChangeKind = iota + 1
	Promote               // makes a learner that has caught up a voter
	Demote                // makes a voter a learner
	Remove                // takes a voter or a learner out of the group
	Describe              // changes nothing but what the state machine notes of a member
)

func (k ChangeKind) String() string {
	return [...]string{"none", "add as a learner", "promote", "demote", "remove", "describe"}[min(k, Describe+1)%6]
}

// Change is one step of a change of the configuration.
type Change struct {
	Kind ChangeKind
	Node uint64
}

func (c Change) String() string { return fmt.Sprintf("%s node %d", c.Kind, c.Node) }

// NotLeadingError says that only the leader can do what was asked for.
type NotLeadingError struct {
	Node   uint64 // was asked
	Leader uint64 // is to be asked; 0: unknown
	// Leaving says that Node leads, is itself to leave or to lose its vote, and transfers
	// the leadership to Leader for that.
	Leaving bool
}

func (e *NotLeadingError) Error() string {
	switch {
	case e.Leaving:
		return fmt.Sprintf("node %d leads and is to give up its vote: it transfers the leadership to node %d; ask that node in a second", e.Node, e.Leader)
	case e.Leader == 0 || e.Leader == e.Node:
		return fmt.Sprintf("node %d does not lead, and knows no leader: ask again in a second, or ask another node", e.Node)
	}
	return fmt.Sprintf("node %d does not lead: ask node %d", e.Node, e.Leader)
}

// Is makes every NotLeadingError match kv.ErrNotLeader.
func (e *NotLeadingError) Is(target error) bool { return target == kv.ErrNotLeader }

// ErrBusy says that a leader cannot do it now, and could in a second.
var ErrBusy = fmt.Errorf("%w: the leader is busy", kv.ErrOverloaded)

// Settled reports whether a configuration is what the changes are to lead to, and no change is
// under way. It cannot tell whether a node was described.
func Settled(conf *pb.ConfState, changes []Change) bool {
	for _, c := range changes {
		if c.Kind != Describe && !done(conf, c) {
			return false
		}
	}
	return !joint(conf)
}

func done(conf *pb.ConfState, c Change) bool {
	voter, learner := slices.Contains(conf.GetVoters(), c.Node), slices.Contains(conf.GetLearners(), c.Node)
	switch c.Kind {
	case AddLearner, Demote:
		return learner
	case Promote:
		return voter
	case Describe: // of which the configuration shows nothing
		return false
	}
	return !voter && !learner
}

// joint reports whether a change is under way that has been applied in part.
func joint(conf *pb.ConfState) bool { return len(conf.GetVotersOutgoing()) > 0 }

// Reconfigure proposes changes of the configuration, which become effective together. It
// returns nil also if nothing is to be done. The change has succeeded when [Settled] says so
// of the applied configuration. If the tenure ends before, a later leader may apply it.
//
// If this node leads and the changes take its vote, it transfers the leadership first, and
// returns a NotLeadingError that says to which node. A leader that took its own vote could
// have a log that is longer than all others: no other node would then be elected.
//
// Errors: kv.ErrInvalidArgument for changes that cannot be made in this configuration, or
// after which no majority that is there could vote; *NotLeadingError; ErrBusy if another
// change is under way, the leadership is being transferred, or entries of earlier leaders are
// not applied; what ended the Core.
func (c *Core) Reconfigure(changes ...Change) error { return c.ReconfigureWith("", changes...) }

// ReconfigureWith is Reconfigure with what the state machines are told with the changes, such as
// the address of a node: see StateMachine.Configure. They are not told if nothing is to be done.
func (c *Core) ReconfigureWith(info string, changes ...Change) error {
	if err := checkChanges(changes); err != nil {
		return err
	}
	if err := c.canChange(); err != nil {
		return err
	}
	conf := c.applied.Conf
	changes = slices.DeleteFunc(slices.Clone(changes), func(change Change) bool { return done(conf, change) })
	if len(changes) == 0 {
		return nil
	}
	for _, change := range changes {
		if err := c.checkChange(change); err != nil {
			return err
		}
	}
	voters := votersAfter(conf, changes)
	if !slices.Contains(voters, c.config.ID) {
		return c.leave(voters)
	}
	if err := c.checkVoters(voters); err != nil {
		return err
	}
	return c.proposeChanges(info, changes)
}

// checkChanges checks what depends on no configuration.
func checkChanges(changes []Change) error {
	if len(changes) == 0 {
		return fmt.Errorf("%w: no change of the configuration is given", kv.ErrInvalidArgument)
	}
	seen := map[uint64]bool{}
	for _, c := range changes {
		switch {
		case c.Kind < AddLearner || c.Kind > Describe:
			return fmt.Errorf("%w: %d is no kind of change", kv.ErrInvalidArgument, c.Kind)
		case c.Node == raft.None || raft.IsLocalMsgTarget(c.Node):
			return fmt.Errorf("%w: %s: no node can have this id", kv.ErrInvalidArgument, c)
		case seen[c.Node]:
			return fmt.Errorf("%w: two changes of node %d at once: make them one after the other", kv.ErrInvalidArgument, c.Node)
		}
		seen[c.Node] = true
	}
	return nil
}

// canChange checks that this node leads, and that no other change or transfer is under way.
func (c *Core) canChange() error {
	switch tenure, open := c.Tenure(); {
	case c.err != nil:
		return c.err
	case c.role.RaftState != raft.StateLeader:
		return &NotLeadingError{Node: c.config.ID, Leader: c.role.Lead}
	case !open:
		return fmt.Errorf("%w: it applies what earlier leaders have left, or transfers the leadership; ask again in a second", ErrBusy)
	case c.changing == tenure || joint(c.applied.Conf):
		return fmt.Errorf("%w: another change of the configuration is under way; ask again when it is applied", ErrBusy)
	}
	return nil
}

// checkChange checks one change against the configuration.
func (c *Core) checkChange(change Change) error {
	conf := c.applied.Conf
	voter, learner := slices.Contains(conf.GetVoters(), change.Node), slices.Contains(conf.GetLearners(), change.Node)
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", kv.ErrInvalidArgument, change, fmt.Sprintf(format, args...))
	}
	switch {
	case change.Kind == AddLearner && voter:
		return refuse("it is a voter already; to take its vote, demote it")
	case change.Kind == Demote && !voter:
		return refuse("it is no voter")
	case change.Kind == Describe && !voter && !learner:
		return refuse("it is not in the group")
	case change.Kind == Promote && !learner:
		return refuse("it is not in the group; add it as a learner first")
	case change.Kind == Promote && !c.recent(change.Node):
		return refuse("it does not answer; promote it when it is up and has caught up")
	case change.Kind == Promote:
		if lag := c.lag(change.Node); lag > maxPromoteLag {
			return refuse("it lacks %d entries, want at most %d; promote it when it has caught up", lag, maxPromoteLag)
		}
	}
	return nil
}

// lag returns how many entries of this leader a node is not known to have.
func (c *Core) lag(id uint64) (lag uint64) {
	c.guard(func() error {
		c.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
			if other == id {
				lag = c.applied.Index - min(p.Match, c.applied.Index)
			}
		})
		return nil
	})
	return lag
}

// votersAfter returns the voters that changes leave.
func votersAfter(conf *pb.ConfState, changes []Change) []uint64 {
	voters := slices.Clone(conf.GetVoters())
	for _, c := range changes {
		switch c.Kind {
		case Promote:
			voters = append(voters, c.Node)
		case AddLearner, Demote, Remove:
			voters = slices.DeleteFunc(voters, func(id uint64) bool { return id == c.Node })
		}
	}
	return voters
}

// leave transfers the leadership to one of the voters that are to stay.
func (c *Core) leave(voters []uint64) error {
	to, ok := c.successor(voters)
	if !ok {
		return fmt.Errorf("%w: node %d leads and cannot give up its vote: no other voter answers that stays; start one, or add a node, first", kv.ErrInvalidArgument, c.config.ID)
	}
	if err := c.Transfer(to); err != nil {
		return err
	}
	return &NotLeadingError{Node: c.config.ID, Leader: to, Leaving: true}
}

// Transfer lets another voter lead, if it can catch up within an election timeout; 0 means the
// one that answers and lacks least. The tenure ends at once; the other voter is told to lead when
// all that was proposed is committed. If the transfer fails, another tenure begins.
//
// Errors: *NotLeadingError; kv.ErrInvalidArgument if the other node cannot lead; ErrBusy if a
// change of the configuration is under way; what ended the Core.
func (c *Core) Transfer(to uint64) error {
	status, voters := c.Status(), c.applied.Conf.GetVoters()
	if c.err != nil {
		return c.err
	}
	if to == 0 {
		to, _ = c.successor(voters)
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w: node %d cannot transfer the leadership to node %d: %s", kv.ErrInvalidArgument, c.config.ID, to, why)
	}
	switch {
	case !status.Leading:
		return &NotLeadingError{Node: c.config.ID, Leader: status.Leader}
	case to == 0:
		return fmt.Errorf("%w: node %d cannot transfer the leadership: no other voter answers", kv.ErrInvalidArgument, c.config.ID)
	case to == c.config.ID:
		return refuse("it leads already")
	case !slices.Contains(voters, to):
		return refuse("that is no voter")
	case !c.recent(to):
		return refuse("that does not answer")
	case c.changing != Tenure{} && c.changing == c.proposals.tenure || joint(c.applied.Conf):
		return fmt.Errorf("%w: a change of the configuration is under way; ask again when it is applied", ErrBusy)
	}
	if c.closing != nil {
		c.closing()
	}
	c.proposals.open = false
	if c.handing.to != to || c.handing.term != status.Term {
		c.handing = handing{to: to, term: status.Term, since: c.ticks}
	}
	return c.err
}

// handing is a transfer of the leadership that waits until everything in the log is committed. Otherwise
// the next leader could commit what this one reports as uncertain: the library tells the other voter to
// lead as soon as that has the last entry, and with five voters those two are no majority.
type handing struct {
	to    uint64 // 0: none waits
	term  uint64
	since uint64 // in ticks
}

// handOn goes on with a transfer that waits, and reports whether it has told the library. It gives
// the transfer up after an election timeout.
func (c *Core) handOn() (told bool) {
	h := c.handing
	if h.to == 0 {
		return false
	}
	c.guard(func() error {
		status := c.node.BasicStatus()
		last, err := c.storage.LastIndex()
		switch {
		case err != nil:
			return err
		case status.RaftState != raft.StateLeader || status.GetTerm() != h.term || c.ticks-h.since >= electionTicks:
			c.handing = handing{}
		case status.GetCommit() == last:
			c.handing = handing{}
			c.node.TransferLeader(h.to)
			told = true
		}
		return nil
	})
	return told
}

// successor returns the one of the voters that answers and lacks least.
func (c *Core) successor(voters []uint64) (id uint64, ok bool) {
	candidates := slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool {
		return id == c.config.ID || !c.recent(id) || !slices.Contains(c.applied.Conf.GetVoters(), id)
	})
	if len(candidates) == 0 {
		return 0, false
	}
	return slices.MinFunc(candidates, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(c.lag(a), c.lag(b)), cmp.Compare(a, b))
	}), true
}

// checkVoters checks that a majority of the voters to come is there. Without one, the group
// could neither finish the change nor take it back.
func (c *Core) checkVoters(voters []uint64) error {
	var silent []uint64
	for _, id := range voters {
		if id != c.config.ID && !c.recent(id) {
			silent = append(silent, id)
		}
	}
	if 2*(len(voters)-len(silent)) <= len(voters) {
		return fmt.Errorf("%w: nodes %v would vote, but %v do not answer: the group would stop; start these, or change others first", kv.ErrInvalidArgument, voters, silent)
	}
	return nil
}

func (c *Core) proposeChanges(info string, changes []Change) error {
	kinds := [...]pb.ConfChangeType{
		AddLearner: pb.ConfChangeAddLearnerNode, Promote: pb.ConfChangeAddNode,
		Demote: pb.ConfChangeAddLearnerNode, Remove: pb.ConfChangeRemoveNode,
		Describe: pb.ConfChangeAddLearnerNode,
	}
	v2 := &pb.ConfChangeV2{Context: []byte(info)}
	for _, change := range changes {
		kind := kinds[change.Kind]
		if change.Kind == Describe && slices.Contains(c.applied.Conf.GetVoters(), change.Node) {
			kind = pb.ConfChangeAddNode
		}
		v2.Changes = append(v2.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(change.Node)})
	}
	taken := false
	c.guard(func() error { taken = c.node.ProposeConfChange(v2) == nil; return nil })
	switch {
	case c.err != nil:
		return c.err
	case !taken: // a message since the last Process has ended the term
		return &NotLeadingError{Node: c.config.ID}
	}
	c.changing = c.proposals.tenure
	return nil
}

// Member describes a node of a group as another one sees it.
type Member struct {
	ID      uint64
	Voter   bool // in the configuration to come, if a change is under way
	Learner bool
	// Recent says that it has sent something within an election timeout; of a node that
	// does not lead only its leader does. A node is always recent to itself.
	Recent bool
	// Silent is how long it has sent nothing to the node that is asked; negative: it never has,
	// since that knows it. Only the leader hears from all.
	Silent time.Duration
	// NeedsCheckpoint says that it lacks entries which the log of the leader has given up. Only
	// the leader knows that.
	NeedsCheckpoint bool
	// Match is the index up to which it is known to have the log; 0 unless the node that
	// is asked leads.
	Match uint64
}

// Members describes the nodes of the group, in the order of their ids. It is a copy.
func (c *Core) Members() []Member {
	match, lacks := map[uint64]uint64{}, map[uint64]bool{}
	c.guard(func() error {
		first, err := c.storage.FirstIndex()
		if err == nil && c.node.BasicStatus().RaftState == raft.StateLeader {
			c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
				match[id] = p.Match
				lacks[id] = p.State == tracker.StateSnapshot || p.Next < first || p.Match > 0 && p.Match+1 < first
			})
		}
		return err
	})
	var members []Member
	for _, id := range slices.Sorted(maps.Keys(c.heard)) {
		members = append(members, Member{
			ID: id, Match: match[id], Recent: id == c.config.ID || c.recent(id), Silent: c.silent(id), NeedsCheckpoint: lacks[id],
			Voter: slices.Contains(c.applied.Conf.GetVoters(), id), Learner: slices.Contains(c.applied.Conf.GetLearners(), id),
		})
	}
	return members
}

// knowMembers keeps of heard the members of the applied configuration.
func (c *Core) knowMembers() {
	conf, heard := c.applied.Conf, map[uint64]uint64{}
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext()} {
		for _, id := range ids {
			heard[id] = c.heard[id]
		}
	}
	c.heard = heard
}

// hear notes that a member has sent something.
func (c *Core) hear(id uint64) {
	if id == c.doubt.leader {
		c.doubt = doubt{}
	}
	if id == c.role.Lead {
		c.backlog.silent = 0
	}
	if _, member := c.heard[id]; member {
		c.heard[id] = c.ticks + 1
	}
}

// silent returns how long a member has sent nothing; negative: it never has.
func (c *Core) silent(id uint64) time.Duration {
	at := c.heard[id]
	switch {
	case id == c.config.ID:
		return 0
	case at == 0:
		return -1
	}
	return time.Duration(c.ticks+1-at) * TickInterval
}

// recent reports whether a member has sent something within an election timeout.
func (c *Core) recent(id uint64) bool {
	at := c.heard[id]
	return at > 0 && c.ticks+1-at < electionTicks
}
