package replica

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
)

// Settings of the library. A tick is meant to be 100 ms.
const (
	// electionTicks without a message of a leader, and up to twice as many at random, make
	// a node ask for votes; a leader that has not heard from a majority for as long steps down.
	electionTicks  = 10
	heartbeatTicks = 1

	// maxMessageBytes bounds the entries of one message, but for a single longer one.
	maxMessageBytes = 1 << 20
	// maxInflightMessages and maxInflightBytes bound what a leader has sent to a follower
	// that has not acknowledged it: no more than what is uncommitted, so only a follower that
	// lags is slowed.
	maxInflightMessages = 256
	maxInflightBytes    = 64 << 20
	// maxApplyBytes bounds the committed entries in memory that are not applied yet.
	maxApplyBytes = 16 << 20

	// processEntries and processBytes bound what one Process applies, but for a single longer entry:
	// some ten milliseconds' worth. Messages and ticks wait for no longer.
	processEntries = 256
	processBytes   = 1 << 20

	// markTicks after its last write the log notes how far it is synced.
	markTicks = 10
)

// StateMachine is what a group replicates. The Core calls it from Process, one call at a
// time, in the order of the indexes; not every index has a call. An error ends the Core.
type StateMachine interface {
	// Room returns nil if the state machine takes a record now. Otherwise the Core applies nothing
	// until the channel is closed or a tick has passed, and then asks again; it goes on with all
	// else. Room does not block.
	Room() <-chan struct{}
	// Apply applies a record, which it borrows. It depends on nothing but the state and its
	// arguments.
	Apply(index, term uint64, record []byte) error
	// Configure notes a configuration change, and what was told with it: the same on
	// every node. What the state machine makes durable with this index, or a later
	// one, has this configuration in its Position. conf is immutable.
	Configure(index, term uint64, conf *pb.ConfState, info string) error
}

// Transport sends messages to other nodes. A message may be lost, repeated or late.
type Transport interface {
	// Send does not block. It takes ownership of the slice. The messages share memory with
	// the Core and must not be changed.
	Send([]*pb.Message)
}

// Config describes a Core. All fields are needed but Newest and Checkpoints.
type Config struct {
	ID uint64 // of this node in the group; never 0, and never used by another node before
	// Boot differs from that of every earlier Core with this ID.
	Boot      uint64
	Log       *raftlog.Log // used by the Core alone until it has ended, closed by its owner
	Group     uint32
	Start     Position // what the state machine holds
	Newest    Position // above Start if parts of the state machine hold more; otherwise zero. It needs no Conf
	Machine   StateMachine
	Transport Transport
	// Checkpoints may be nil: then this node sends and takes none.
	Checkpoints Checkpoints
}

// Output is what Process reports to the callers of Propose and Read.
type Output struct {
	Outcomes []Outcome
	Reads    []uint64 // ids of reads that are answered by the state as it is now
	// More says that committed entries are left to apply: Process is to be called again, with
	// what has come meanwhile. If Room is not nil the state machine takes none before it is closed,
	// or a tick has passed.
	More bool
	Room <-chan struct{}
}

// Status describes a Core. It is a copy.
type Status struct {
	Term      uint64
	Leader    uint64 // 0 if unknown
	Leading   bool
	Campaigns bool   // it asks for votes
	Last      uint64 // index of the newest entry of its log
	Committed uint64 // index
	Applied   Position
}

// Core drives the consensus of one group on this node. It is for one goroutine.
type Core struct {
	config  Config
	storage *storage
	node    *raft.RawNode
	err     error // what ended the Core

	ticks     uint64
	lastWrite uint64 // in ticks
	reclaims  bool   // segments of the log may be left to delete
	role      raft.SoftState
	term      uint64
	applied   Position

	backlog backlog
	advance advance

	// campaign is a message of the leader that tells this node to campaign. It waits until all
	// is applied: the library ignores it while a configuration change is not. But the leader has given the
	// transfer up after an election timeout, and leads on.
	campaign   *pb.Message
	campaignAt uint64 // in ticks

	offers map[uint64]uint64 // by node that was offered a checkpoint: since when, in ticks

	heard    map[uint64]uint64 // by member: one more than the tick of its last message; 0: none
	changing Tenure            // in which a change was proposed that is not applied; zero: none
	doubt    doubt             // about the leader

	handing   handing
	closing   func() // called before a transfer ends the tenure; it may propose; nil: none
	proposals proposals
	reads     reads
	counters  counters
}

// New returns a Core that goes on from the log and the Position of the state machine.
//
// Errors: kv.ErrCorrupt if the log and a Position do not fit together; errors of the log;
// kv.ErrInvalidArgument for an ID that no node can have, or without a configuration.
func New(c Config) (*Core, error) {
	if c.ID == raft.None || raft.IsLocalMsgTarget(c.ID) || c.Start.Conf == nil {
		return nil, fmt.Errorf("%w: node %d cannot start with the configuration %v", kv.ErrInvalidArgument, c.ID, c.Start.Conf)
	}
	s, err := newStorage(c.Log.Group(c.Group), c.Start)
	if err == nil {
		err = s.reaches(c.Newest)
	}
	if err != nil {
		return nil, fmt.Errorf("start node %d of group %d: %w", c.ID, c.Group, err)
	}
	core := &Core{config: c, storage: s, applied: c.Start, backlog: backlog{entriesAtOnce: processEntries, bytesAtOnce: processBytes}}
	s.offer = core.offer
	core.knowMembers()
	core.guard(func() error {
		core.node, err = raft.NewRawNode(&raft.Config{
			ID: c.ID, Storage: s, Applied: c.Start.Index, Logger: quietLogger{},
			ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, PreVote: true, CheckQuorum: true,
			MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: maxApplyBytes,
			MaxInflightMsgs: maxInflightMessages, MaxInflightBytes: maxInflightBytes,
			ReadOnlyOption: raft.ReadOnlySafe, DisableProposalForwarding: true, StepDownOnRemoval: true,
			AsyncStorageWrites: true, // only so that applying may lag: a turn writes as it always did
		})
		return err
	})
	if core.err != nil {
		return nil, core.err
	}
	core.term = core.node.BasicStatus().GetTerm()
	return core, nil
}

// Err returns what ended the Core, nil while it works.
func (c *Core) Err() error { return c.err }

// Stop ends the Core. Process then reports the outcomes that are left.
func (c *Core) Stop() { c.fail(kv.ErrClosed) }

// Status describes the Core.
func (c *Core) Status() Status {
	s := Status{Applied: c.applied}
	c.guard(func() error {
		b := c.node.BasicStatus()
		s.Term, s.Leader, s.Committed = b.GetTerm(), b.Lead, b.GetCommit()
		s.Leading = b.RaftState == raft.StateLeader
		s.Campaigns = b.RaftState == raft.StateCandidate || b.RaftState == raft.StatePreCandidate
		var err error
		s.Last, err = c.storage.LastIndex()
		return err
	})
	return s
}

// Tick says that a tick has passed.
func (c *Core) Tick() {
	c.ticks++
	if c.waits() {
		c.backlog.tick(c)
	} else {
		c.pursue()
		c.guard(func() error { c.node.Tick(); return nil })
	}
	c.loseOffers()
	c.giveUpIfStuck()
	c.reclaim()
	if c.err == nil && c.ticks == c.lastWrite+markTicks {
		if err := c.config.Log.Mark(); err != nil {
			c.fail(err)
		}
	}
}

// Step takes a message of a peer, and ownership of it.
//
// Errors: kv.ErrInvalidArgument for a message that no peer sends; the Core goes on. What
// ended the Core.
func (c *Core) Step(m *pb.Message) error {
	if err := checkMessage(m, c.config.ID); err != nil {
		return err
	}
	if m.GetType() == pb.MsgSnap && c.config.Checkpoints == nil {
		return fmt.Errorf("%w: this node takes no checkpoints", kv.ErrInvalidArgument)
	}
	c.guard(func() error {
		if m.GetTerm() <= c.term && c.loses(m) {
			return nil
		}
		if saysNothing(m) && m.GetTerm() <= c.node.BasicStatus().GetTerm() {
			return nil
		}
		if m.GetType() != pb.MsgReadIndex { // which its sender may have from another node
			c.hear(m.GetFrom())
		}
		switch m.GetType() {
		case pb.MsgTimeoutNow:
			c.campaign, c.campaignAt = m, c.ticks
		case pb.MsgSnap:
			c.offered(m)
		default:
			_ = c.node.Step(m) // an error says that the sender is no member, and nothing has changed
		}
		return nil
	})
	return c.err
}

// Compact gives up entries of the log that the state machine has durably applied: those up to
// free. A leader keeps of them what a follower has not acknowledged to it, but none up to most:
// that follower gets a checkpoint. If many files are to be deleted, later ticks go on with that.
//
// Errors: kv.ErrInvalidArgument if an index is not applied, or most is above free; what ended
// the Core.
func (c *Core) Compact(free, most uint64) error {
	if c.err == nil && (free > c.applied.Index || most > free) {
		return fmt.Errorf("%w: the log cannot be compacted to index %d or %d: it is applied up to %d", kv.ErrInvalidArgument, free, most, c.applied.Index)
	}
	c.guard(func() error {
		index := free
		if c.node.BasicStatus().RaftState == raft.StateLeader {
			c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) { index = min(index, p.Match) })
			index = max(index, most)
		}
		first, err := c.storage.FirstIndex()
		if err != nil || index < first {
			return err
		}
		if err := c.config.Log.Compact(c.config.Group, index); err != nil {
			return err
		}
		c.reclaims = true
		return c.config.Log.Reclaim()
	})
	return c.err
}

// reclaim deletes some more segments of the log that are given up. It is called in each tick.
func (c *Core) reclaim() {
	if !c.reclaims {
		return
	}
	if c.reclaims = c.config.Log.Reclaimable(); c.reclaims {
		c.guard(c.config.Log.Reclaim)
	}
}

// Process does what follows from the calls before it. See "A turn" in the package comment.
//
// Errors: what ended the Core. The outcomes are valid also then: once all of them are
// reported, none follow.
func (c *Core) Process() (out Output, err error) {
	defer func() { c.count(out.Outcomes) }()
	c.backlog.begin()
	for c.err == nil {
		c.beginRound()
		if c.node.HasReady() {
			c.turn(&out)
			continue
		}
		if c.handOn() {
			continue
		}
		if c.backlog.len() > 0 {
			if c.applySome(&out); out.More {
				break
			}
			continue
		}
		if c.campaign == nil {
			break
		}
		if c.ticks-c.campaignAt < electionTicks {
			c.guard(func() error { _ = c.node.Step(c.campaign); return nil })
		}
		c.campaign = nil
	}
	if c.err != nil {
		out.More, out.Room = false, nil
		c.proposals.end(&out)
		return out, c.err
	}
	leading := c.leading()
	if !leading {
		c.proposals.open = false
	}
	if out.More { // what is committed is not reported as uncertain, and no tenure begins before it
		return out, nil
	}
	if leading {
		c.beginTenure()
	} else {
		c.proposals.end(&out)
	}
	c.proposals.endDropped(&out)
	return out, nil
}

// turn handles what the library has ready.
func (c *Core) turn(out *Output) {
	var ready raft.Ready
	if c.guard(func() error { ready = c.node.Ready(); return nil }); c.err != nil {
		return
	}
	if ready.SoftState != nil {
		c.becomes(*ready.SoftState)
	}
	begun := c.term
	if !raft.IsEmptyHardState(ready.HardState) {
		c.term = ready.GetTerm()
	}
	c.proposals.place(ready.Entries)
	messages, after := c.divide(ready.Messages)
	if c.role.RaftState == raft.StateLeader && c.term == begun && ready.MustSync {
		messages = c.sendEntries(messages)
	}
	if c.persist(ready); c.err != nil {
		return
	}
	c.send(messages)
	c.guard(func() error {
		for _, m := range after {
			_ = c.node.Step(m) // an error says that this node is no member any more
		}
		return nil
	})
	c.backlog.add(ready.CommittedEntries)
	c.reads.confirm(c.config, ready.ReadStates)
	c.reads.answer(c.applied.Index, out)
}

// divide returns the messages to other nodes, in the order in which they are to be sent, and those
// to this one: they say that what the turn writes is synced, and follow that.
func (c *Core) divide(messages []*pb.Message) (others, own []*pb.Message) {
	others = make([]*pb.Message, 0, len(messages)) // mostly all of them
	for _, m := range messages {
		switch m.GetTo() {
		case raft.LocalApplyThread: // its entries are in Ready.CommittedEntries
		case raft.LocalAppendThread:
			for _, response := range m.GetResponses() {
				if response.GetTo() == c.config.ID {
					own = append(own, response)
				} else {
					others = append(others, response)
				}
			}
		default:
			others = append(others, m)
		}
	}
	return others, own
}

// sendEntries sends the entries of a leader, before it syncs them itself, and returns the other
// messages. They depend on nothing but the term and the vote by which it leads, which are synced.
func (c *Core) sendEntries(messages []*pb.Message) (others []*pb.Message) {
	var entries []*pb.Message
	for _, m := range messages {
		if m.GetType() == pb.MsgApp {
			entries = append(entries, m)
		} else {
			others = append(others, m)
		}
	}
	c.send(entries)
	return others
}

func (c *Core) send(messages []*pb.Message) {
	if c.advance.silent {
		messages = slices.DeleteFunc(slices.Clone(messages), c.loses)
	}
	if len(messages) > 0 {
		c.config.Transport.Send(messages)
	}
}

// persist writes the hard state and the entries, and syncs them if a message or the state
// machine may depend on them (C1).
func (c *Core) persist(ready raft.Ready) {
	u := raftlog.Update{Group: c.config.Group, Entries: ready.Entries}
	if !raft.IsEmptyHardState(ready.HardState) {
		u.HardState = ready.HardState
	}
	switch {
	case !raft.IsEmptySnap(ready.Snapshot):
		c.fail(errors.New("the library wants to install a snapshot, although none was let in"))
	case u.HardState != nil || len(u.Entries) > 0:
		c.lastWrite = c.ticks
		if err := c.config.Log.Write(ready.MustSync, u); err != nil {
			c.fail(err)
		}
	}
}

// apply applies a committed entry.
func (c *Core) apply(e *pb.Entry, out *Output) {
	var err error
	applied := false
	switch {
	case e.GetType() != pb.EntryNormal:
		err = c.reconfigure(e)
	case len(e.GetData()) > 0:
		var term uint64
		var record []byte
		term, record, err = decodeEntry(e.GetData())
		if applied = err == nil && term == e.GetTerm(); applied {
			err = c.config.Machine.Apply(e.GetIndex(), term, record)
		}
	}
	if err != nil {
		c.fail(fmt.Errorf("apply entry %d of term %d: %w", e.GetIndex(), e.GetTerm(), err))
		return
	}
	c.applied.Index, c.applied.Term = e.GetIndex(), e.GetTerm()
	c.proposals.resolve(e, applied, out)
}

// reconfigure applies a configuration change.
func (c *Core) reconfigure(e *pb.Entry) error {
	change, err := changeOf(e)
	if err != nil {
		return err
	}
	c.guard(func() error { c.applied.Conf = c.node.ApplyConfChange(change); return nil })
	if c.err != nil {
		return c.err
	}
	c.knowMembers()
	if !joint(c.applied.Conf) {
		c.changing = Tenure{}
	}
	return c.config.Machine.Configure(e.GetIndex(), e.GetTerm(), c.applied.Conf, string(change.GetContext()))
}

// changeOf returns the configuration change of an entry, nil if it has none.
//
// Errors: kv.ErrCorrupt.
func changeOf(e *pb.Entry) (change *pb.ConfChangeV2, err error) {
	switch e.GetType() {
	case pb.EntryConfChange:
		v1 := &pb.ConfChange{}
		err = proto.Unmarshal(e.GetData(), v1)
		change = v1.AsV2()
	case pb.EntryConfChangeV2:
		change = &pb.ConfChangeV2{}
		err = proto.Unmarshal(e.GetData(), change)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: configuration change: %w", kv.ErrCorrupt, err)
	}
	return change, nil
}

// leading reports whether this node leads in the term in which it proposed what has no
// outcome yet.
func (c *Core) leading() bool {
	return c.role.RaftState == raft.StateLeader && c.proposals.ofTerm(c.term)
}

// guard calls the library. What it panics with in a state that it finds impossible, and
// an error of the log, end the Core.
//
// A panic that is no error, or one of the runtime, is a bug and goes on.
func (c *Core) guard(call func() error) {
	if c.err != nil {
		return
	}
	defer func() {
		p := recover()
		err, known := p.(error)
		_, bug := p.(runtime.Error)
		switch {
		case c.storage.err != nil:
			c.fail(c.storage.err)
		case known && !bug:
			c.fail(fmt.Errorf("consensus: %w", err))
		case p != nil:
			panic(p)
		}
	}()
	if err := call(); err != nil {
		c.fail(err)
	}
}

// fail ends the Core.
func (c *Core) fail(err error) error {
	if c.err == nil {
		if !errors.Is(err, kv.ErrClosed) && !errors.Is(err, kv.ErrFailed) {
			err = fmt.Errorf("%w: %w", kv.ErrFailed, err)
		}
		c.err = err
		if !errors.Is(err, kv.ErrClosed) {
			c.err = fmt.Errorf("node %d of group %d: %w", c.config.ID, c.config.Group, err)
		}
		c.proposals.open = false
	}
	return c.err
}
