package replicated

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// Group is the number of the one group of a cluster.
const Group = 0

// Config describes a node of a cluster.
type Config struct {
	// Cluster is the random id of the cluster. Node is the id of this node in it; never 0, and
	// never used by another node before.
	Cluster, Node uint64
	// Voters are the first nodes of the cluster, the same on all of them. They count when the
	// store is created; an existing store needs none. A store that is created without them waits
	// for a checkpoint of the leader.
	Voters []uint64
	// Addresses are those of the nodes that this one was told when it was made, by id. They count
	// for nodes of which the log says nothing yet.
	Addresses map[uint64]string
	// Follow is told the addresses of all nodes, by id, whenever they change. It must not block;
	// nil: nothing is told.
	Follow func(addresses map[uint64]string)
	// Transport nil drops all messages: the node is only made.
	Transport replica.Transport
	// Files fetches a checkpoint of another node: see peer.Network.Files. Nil: this node takes
	// and sends none.
	Files func(ctx context.Context, node uint64, token []byte) (Files, error)
	// EntryBytes bounds the newest entries of the log that are kept in memory, for nodes that follow;
	// 0: see raftlog.Options.
	EntryBytes int64
	// TransferRate bounds the bytes a second that this node reads of a checkpoint for another
	// node, and those that it receives; 0: no bound. See pace.Bucket.
	TransferRate int64
	// Incarnation is that of the cluster as this node knew it last, or was told when it was made.
	Incarnation kv.Incarnation
	// Recover, if not nil, decides whether this node becomes the only one of its cluster: see
	// replica.PlanRecovery. The cluster is Recovered then. In any case the node does not start: Start
	// returns ErrRecovery.
	Recover   func(*replica.Recovery) bool
	Recovered kv.Incarnation
	// Report, if not nil, is told of checkpoints that are made, sent and fetched. It does not
	// block.
	Report func(Event)
	// Exchange tells another node the digest of this one, and returns its newest: it calls Hear
	// there. Nil: states are not compared.
	Exchange func(ctx context.Context, node uint64, mine peer.Digest) (peer.Digest, error)
	// Compared is told what a comparison of states has found, and again if more nodes tell their
	// digests later. It does not block. May be nil.
	Compared func(Comparison)
	// HandedOver is told when this node hands the leadership over because of its disk, or cannot.
	// It does not block. May be nil.
	HandedOver func(HandOver)
}

// Log is the replicated log of a node. It implements engine.ReplicatedLog. Its methods are safe
// for concurrent use, but for Open, Start and Close.
type Log struct {
	config Config
	boot   uint64
	file   *raftlog.Log
	conf   atomic.Pointer[Configuration] // nil before Start

	caughtUp map[uint64]int // of Promote: by learner, for how many calls
	met      met

	checkpoints *checkpoints
	comparer    comparer
	full        atomic.Pointer[string] // why this node should not lead; nil or empty: it may
	handedOver  [2]atomic.Uint64       // because of a slow disk, and of a full one
	caring      sync.WaitGroup         // the comparer, and care
	end         context.CancelFunc     // of those; nil: they do not run

	mu   sync.Mutex
	loop *replica.Loop // nil before Start
}

var _ engine.ReplicatedLog = (*Log)(nil)

// New returns a log that is not open.
func New(c Config) *Log {
	if c.Transport == nil {
		c.Transport = nowhere{}
	}
	l := &Log{config: c}
	l.checkpoints = newCheckpoints(l)
	l.comparer = comparer{node: c.Node, nodes: l.Members, exchange: c.Exchange, report: c.Compared, wake: make(chan struct{}, 1), theirs: map[uint64]peer.Digest{}}
	if c.Compared == nil {
		l.comparer.report = func(Comparison) {}
	}
	return l
}

// nowhere drops messages.
type nowhere struct{}

// Send implements replica.Transport.
func (nowhere) Send([]*pb.Message) {}

// Open implements engine.ReplicatedLog.
func (l *Log) Open(f engine.LogFiles) (engine.LogBegin, error) {
	l.boot = f.Boot
	l.checkpoints.fs, l.checkpoints.dir = f.FS, f.Data
	node := descriptor.Node{Cluster: l.config.Cluster, Node: l.config.Node}
	var err error
	l.file, _, err = raftlog.Open(raftlog.Options{
		FS: f.FS, Dir: f.Dir, StoreID: node.LogID(), SegmentBytes: f.SegmentBytes, CacheBytes: l.config.EntryBytes, Fresh: f.Created,
	})
	if err != nil {
		return engine.LogBegin{}, err
	}
	mark, err := l.file.Group(Group).Snapshot()
	return engine.LogBegin{Index: mark.GetMetadata().GetIndex(), Term: mark.GetMetadata().GetTerm()}, err
}

// Start implements engine.ReplicatedLog.
func (l *Log) Start(at, newest *engine.Position, m engine.Member) error {
	start, conf, err := l.position(at)
	if err != nil {
		return err
	}
	if l.config.Recover != nil {
		return l.recoverAlone(start, newestOf(newest))
	}
	machine := stateMachine{l, m}
	if err := machine.configure(start.Index, start.Term, conf); err != nil {
		return err
	}
	c := replica.Config{
		ID: l.config.Node, Boot: l.boot, Log: l.file, Group: Group, Start: start, Machine: machine, Transport: l.config.Transport,
		Newest: newestOf(newest),
	}
	if l.config.Files != nil {
		l.checkpoints.start(m)
		c.Checkpoints = l.checkpoints
	}
	core, err := replica.New(c)
	if err != nil {
		return err
	}
	l.mu.Lock() // the first call of the loop may ask for it
	defer l.mu.Unlock()
	l.loop = replica.Start(core, proposer{m})
	var life context.Context
	life, l.end = context.WithCancel(context.Background())
	l.caring.Go(func() { l.care(life) })
	if l.config.Exchange != nil {
		l.comparer.differs = m.Differs
		l.caring.Go(func() { l.comparer.run(life) })
	}
	return nil
}

// newestOf returns the highest place that a partition has saved, for replica; zero: there is none.
func newestOf(at *engine.Position) replica.Position {
	if at == nil {
		return replica.Position{}
	}
	return replica.Position{Index: at.Index, Term: at.Term}
}

// ErrRecovery ends the start of a node that was opened for Config.Recover.
var ErrRecovery = errors.New("the node was opened to be made the only one of its cluster")

// recoverAlone makes this node the only one, if Config.Recover says so.
func (l *Log) recoverAlone(start, newest replica.Position) error {
	plan, err := replica.PlanRecovery(l.file, Group, l.config.Node, start, newest, encodeRecovered(l.config.Recovered))
	if err != nil {
		return err
	}
	if l.config.Recover(plan) {
		if err := plan.Recover(l.file, Group); err != nil {
			return err
		}
	}
	return ErrRecovery
}

// running returns the loop, nil before Start.
func (l *Log) running() *replica.Loop {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loop
}

// position returns where the store stands, for replica, and the configuration there.
func (l *Log) position(at *engine.Position) (replica.Position, *Configuration, error) {
	if at == nil {
		start, err := l.beginning()
		return start, firstConfiguration(start.Conf, l.config.Addresses), err
	}
	conf, err := decodeConfiguration(at.Conf, l.config.Addresses)
	if err != nil {
		return replica.Position{}, nil, err
	}
	return replica.Position{Index: at.Index, Term: at.Term, Conf: conf.Conf}, conf, nil
}

// beginning returns the position at which the history begins. It writes it to a log that is
// empty (P3).
func (l *Log) beginning() (replica.Position, error) {
	g := l.file.Group(Group)
	last, err := g.LastIndex()
	if err != nil {
		return replica.Position{}, err
	}
	switch {
	case last == 0 && len(l.config.Voters) == 0: // it is added to the group by others, and has no vote until then
		return replica.Position{Conf: &pb.ConfState{}}, nil
	case last == 0:
		return replica.Bootstrap(l.file, Group, l.config.Voters)
	}
	first, err := g.Snapshot()
	if err != nil {
		return replica.Position{}, err
	}
	mark := first.GetMetadata()
	if mark.GetIndex() != replica.BootstrapIndex { // of a checkpoint, which the store has not
		return replica.Position{Conf: &pb.ConfState{}}, nil
	}
	return replica.Position{Index: mark.GetIndex(), Term: mark.GetTerm(), Conf: mark.GetConfState()}, nil
}

// Deliver takes a message of another node, and ownership of it. It reports false, and drops the
// message, if the log is not running or too many wait.
func (l *Log) Deliver(m *pb.Message) bool {
	loop := l.running()
	return loop != nil && loop.Deliver(m)
}

// Gone says that the process of another node seems to have ended: see replica.Core.Gone.
func (l *Log) Gone(node uint64) {
	if loop := l.running(); loop != nil {
		loop.Gone(node)
	}
}

// Status describes the node's part in the group. The log has been started.
func (l *Log) Status() replica.Status { return l.running().Status() }

// Transfer asks for a transfer of the leadership: see replica.Loop.Transfer.
func (l *Log) Transfer(to uint64) { l.running().Transfer(to) }

// HandOver lets the voter that lacks least lead in place of this node, if this one leads, and
// returns which one does. It returns 0 if this node does not lead. While a change of the
// configuration is under way it tries again, until ctx ends.
//
// Errors: those of replica.Loop.TransferTo, as when no other voter answers.
func (l *Log) HandOver(ctx context.Context) (leader uint64, err error) {
	loop := l.running()
	if loop == nil || !loop.Status().Leading {
		return 0, nil
	}
	for {
		leader, err = loop.TransferTo(ctx, 0)
		if !errors.Is(err, replica.ErrBusy) {
			return leader, err
		}
		select { // a change of the configuration is under way
		case <-time.After(replica.TickInterval):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// Propose implements engine.ReplicatedLog.
func (l *Log) Propose(t engine.Tenure, record []byte) (uint64, error) {
	id, err := l.running().Propose(replica.Tenure(t), record)
	if errors.Is(err, replica.ErrNoRoom) {
		err = wal.ErrNoRoomYet
	}
	return id, err
}

// Read implements engine.ReplicatedLog.
func (l *Log) Read(ctx context.Context) error { return l.running().Read(ctx) }

// Fresh implements engine.ReplicatedLog.
func (l *Log) Fresh(lag time.Duration) bool { return l.running().Fresh(lag) }

// Leader implements engine.ReplicatedLog.
func (l *Log) Leader() (id uint64, address string) {
	loop := l.running()
	if loop == nil || l.conf.Load() == nil {
		return 0, ""
	}
	id = loop.Status().Leader
	return id, l.Address(id)
}

// Leads says which node leads: see replica.Loop.Leads. The log has been started.
func (l *Log) Leads() replica.Leads { return l.running().Leads() }

// Address returns where clients reach a node; empty: it is not known.
func (l *Log) Address(node uint64) string {
	if c := l.conf.Load(); c != nil {
		return c.Nodes[node].Client
	}
	return ""
}

// Verify implements engine.ReplicatedLog.
func (l *Log) Verify(ctx context.Context, through func(vfs.FS) vfs.FS, progress func(bytes int64), verified func(name string, err error) error) error {
	return l.file.Verify(ctx, through, progress, verified)
}

// Compact implements engine.ReplicatedLog.
func (l *Log) Compact(free, most uint64) { l.running().Compact(free, most) }

// Records implements engine.ReplicatedLog.
func (l *Log) Records(ctx context.Context, after uint64, fn func([]byte) (bool, error)) error {
	return l.running().Records(ctx, after, fn)
}

// Done implements engine.ReplicatedLog.
func (l *Log) Done() <-chan struct{} { return l.running().Done() }

// Err implements engine.ReplicatedLog.
func (l *Log) Err() error { return l.running().Err() }

// Close implements engine.ReplicatedLog.
func (l *Log) Close() error {
	l.checkpoints.stop()
	if loop := l.running(); loop != nil {
		loop.Stop()
	}
	if l.end != nil {
		l.end()
		l.caring.Wait()
	}
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// stateMachine is the store as replica sees it.
type stateMachine struct {
	log    *Log
	member engine.Member
}

// Room implements replica.StateMachine.
func (s stateMachine) Room() <-chan struct{} { return s.member.Room() }

// Apply implements replica.StateMachine.
func (s stateMachine) Apply(index, term uint64, record []byte) error {
	return s.member.Apply(index, term, record)
}

// Configure implements replica.StateMachine.
func (s stateMachine) Configure(index, term uint64, conf *pb.ConfState, info string) error {
	next, err := s.log.conf.Load().after(conf, info)
	if err != nil {
		return err
	}
	return s.configure(index, term, next)
}

func (s stateMachine) configure(index, term uint64, c *Configuration) error {
	b, err := c.encode()
	if err != nil {
		return err
	}
	c.Index = index // it is new, and no other goroutine has it yet
	s.log.conf.Store(c)
	if s.log.config.Follow != nil {
		s.log.config.Follow(c.Addresses(s.log.config.Addresses))
	}
	return s.member.Configure(index, term, b)
}

// proposer is the store as the loop of replica sees it.
type proposer struct{ member engine.Member }

// Lead implements replica.Proposer.
func (p proposer) Lead(t replica.Tenure) { p.member.Lead(engine.Tenure(t)) }

// Lost implements replica.Proposer.
func (p proposer) Lost(t replica.Tenure) { p.member.Lost(engine.Tenure(t)) }

// Ended implements replica.Proposer.
func (p proposer) Ended(outcomes []replica.Outcome) {
	ended := make([]engine.Outcome, len(outcomes))
	for i, o := range outcomes {
		ended[i] = engine.Outcome{ID: o.ID, Committed: o.Result == replica.Committed}
	}
	p.member.Ended(ended)
}
