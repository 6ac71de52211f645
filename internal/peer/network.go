package peer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/kvd-db/kvd/internal/address"
	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

const (
	// maxConns bounds the connections of the listener: four of each of a dozen nodes, and old ones. See
	// door.
	maxConns = 64
	// handshakeWait and idleWait end the connections of strangers.
	handshakeWait = 5 * time.Second
	idleWait      = 15 * time.Second
	// pingAfter silence a side asks whether the other is there, and gives up after pingWait.
	pingAfter = 10 * time.Second
	pingWait  = 5 * time.Second

	headerListBytes = 4 << 10
	// forwardsPerConn is how many calls a connection has at a time: of those that forward writes
	// some have many. Guessed: as many writes as a sync or two take together.
	forwardsPerConn = 64
	windowBytes     = 1 << 20 // of a stream: what a node receives before it looks at it
)

// Options describe a node. TLS and Report may be nil, all others are needed.
type Options struct {
	Cluster uint64
	Node    uint64 // id
	Group   uint32 // of the Raft group
	Layout  Layout // of the store
	Store   uint64 // random id of its data directory; 0: it tells none
	Listen  string // address of the listener: host and port
	// TLS has the certificate of the node and the authority of the cluster. Without it, all
	// addresses have to be those of loopback.
	TLS *certificate.Server
	// Report is told when a stream works (nil), when it does not any more or cannot be made,
	// and of calls that are refused, by goroutines of the Network. It does not block.
	Report func(Event)
}

// Event is a change in the connections to other nodes.
type Event struct {
	Node uint64 // 0: a stranger
	Lane string // "small" or "appends"; empty for a stranger
	Err  error  // nil: the stream works
}

// Receiver takes messages: a replica.Loop.
type Receiver interface {
	// Deliver does not block. It takes ownership of the message, or drops it and returns false.
	Deliver(*pb.Message) bool
	// Gone says that the process of a node seems to have ended: a stream to it has ended, and
	// another one was refused. It does not block. Both lanes may say so.
	Gone(node uint64)
}

// Network carries the messages of a node. Safe for concurrent use.
type Network struct {
	options Options
	first   []uint64 // see SetFirst

	incarnation atomic.Pointer[kv.Incarnation] // never nil

	listener net.Listener
	door     *door // of listener
	server   *grpc.Server

	receiver    atomic.Pointer[Receiver]
	checkpoints atomic.Pointer[func(context.Context, uint64, []byte) (Checkpoint, error)]
	hear        atomic.Pointer[func(uint64, Digest) Digest]
	answer      atomic.Pointer[func(context.Context, uint64, *peerpb.AskRequest) (*peerpb.AskResponse, error)]
	judge       atomic.Pointer[func(node, store uint64) error]
	perform     atomic.Pointer[func(context.Context, *Forwarded) error]
	sending     atomic.Bool   // files, to one other node
	stallWait   time.Duration // see the constant
	firstPause  time.Duration // minPause
	members     atomic.Pointer[map[uint64]*member]
	self        atomic.Pointer[whereabouts] // of this node; never nil

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex // held while members and their links change
	closed   bool
	at, next uint64              // see SetConfiguration
	reported map[laneName]string // what Report was told last, of members

	refusals     atomic.Uint64
	refusedLast  sparingly
	droppedAlien atomic.Uint64
}

type laneName struct {
	node uint64
	lane peerpb.Lane
}

// New listens. Messages are dropped until Start, and those for nodes that are no members.
//
// Errors: kv.ErrInvalidArgument for options that do not fit together; those of the listener.
func New(o Options) (*Network, error) {
	if o.Cluster == 0 || o.Node == 0 {
		return nil, fmt.Errorf("%w: a node needs the id of its cluster and one of its own", kv.ErrInvalidArgument)
	}
	n := &Network{options: o, reported: map[laneName]string{}, stallWait: stallWait, firstPause: minPause}
	n.members.Store(&map[uint64]*member{})
	n.incarnation.Store(new(kv.Incarnation))
	n.self.Store(new(whereabouts))
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		server, _, err := o.TLS.Nodes("h2", nil)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", kv.ErrInvalidArgument, err)
		}
		creds = credentials.NewTLS(server)
	} else if err := checkLoopback(o.Listen); err != nil {
		return nil, err
	}
	listener, err := address.Listen(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other nodes: %w", err)
	}
	n.listener, n.door = listener, newDoor(listener, maxConns, n.refused)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.server = grpc.NewServer(
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(packetBytes+packetOverhead),
		grpc.MaxHeaderListSize(headerListBytes),
		grpc.MaxConcurrentStreams(forwardsPerConn),
		grpc.ConnectionTimeout(handshakeWait),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleWait, Time: pingAfter, Timeout: pingWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	peerpb.RegisterPeerServiceServer(n.server, &service{network: n})
	return n, nil
}

// checkLoopback returns an error unless an address is one of this machine.
func checkLoopback(hostPort string) error {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return fmt.Errorf("%w: address %q: %w", kv.ErrInvalidArgument, hostPort, err)
	}
	if !address.IsLoopback(host) {
		return fmt.Errorf("%w: without certificates nodes talk over loopback alone, and %q is not that: name the certificate of this node and the authority of the cluster", kv.ErrInvalidArgument, hostPort)
	}
	return nil
}

// SetFirst says with which voters the cluster began, as this node knows it: nodes that know others
// refuse each other. Without it, or with none, that is not compared. It is called before Start and
// SetMembers.
func (n *Network) SetFirst(voters []uint64) { n.first = slices.Sorted(slices.Values(voters)) }

// SetIncarnation says which incarnation of the cluster this node belongs to, as far as it knows: calls
// of nodes of another one are refused. It is the zero one before.
func (n *Network) SetIncarnation(i kv.Incarnation) { n.incarnation.Store(&i) }

// Start begins to take messages.
func (n *Network) Start(r Receiver) {
	n.receiver.Store(&r)
	n.running.Go(func() { _ = n.server.Serve(n.door) }) // it ends with Close
}

// Addr returns the address of the listener.
func (n *Network) Addr() string { return n.listener.Addr().String() }

// CheckAddress returns an error unless a new node can be at an address.
//
// Errors: kv.ErrInvalidArgument.
func (n *Network) CheckAddress(address string) error {
	if err := descriptor.CheckAddress(address); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrInvalidArgument, err)
	}
	return n.CheckSecured(address)
}

// CheckSecured returns an error if this node must not call an address as it has no certificate.
//
// Errors: kv.ErrInvalidArgument.
func (n *Network) CheckSecured(address string) error {
	if n.options.TLS == nil {
		return checkLoopback(address)
	}
	return nil
}

// dial returns a connection, which is made when it is used.
func dial(address string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	dialer := &net.Dialer{} // also for addresses that are no URL, and without the proxy of the environment
	return grpc.NewClient("passthrough:///node",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) }),
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minPause, Multiplier: 2, Jitter: 0.5, MaxDelay: maxPause},
			MinConnectTimeout: connectWait,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(packetBytes+packetOverhead)),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithMaxHeaderListSize(headerListBytes),
		grpc.WithDisableServiceConfig(),
	)
}

// Send implements replica.Transport: it drops what cannot be sent soon.
func (n *Network) Send(messages []*pb.Message) {
	members := *n.members.Load()
	for _, m := range messages {
		to := members[m.GetTo()]
		switch {
		case to == nil:
			n.droppedAlien.Add(1)
		case m.GetType() == pb.MsgApp || m.GetType() == pb.MsgSnap:
			to.link.Load().appends.queue.put(m)
		default:
			to.link.Load().small.queue.put(m)
		}
	}
}

// gone tells that the process of a node seems to have ended.
func (n *Network) gone(node uint64) {
	if r := n.receiver.Load(); r != nil {
		(*r).Gone(node)
	}
}

// works is what is reported of a lane without an error.
const works = "works"

// report tells of the state of a lane, once until it changes.
func (n *Network) report(l *lane, err error) {
	name, text := laneName{l.to.id, l.kind}, works
	if err != nil {
		text = err.Error()
	}
	n.mu.Lock()
	again := n.reported[name] == text || n.member(l.to.id) != l.to
	if !again {
		n.reported[name] = text
	}
	n.mu.Unlock()
	if !again && n.options.Report != nil {
		n.options.Report(Event{Node: l.to.id, Lane: laneText(l.kind), Err: err})
	}
}

func laneText(l peerpb.Lane) string {
	if l == peerpb.Lane_LANE_APPENDS {
		return "appends"
	}
	return "small"
}

// refused counts a refused call, and reports it: at most one a second, and one a minute for the
// same reason, as a node that is refused calls again and again.
func (n *Network) refused(from string, why error) {
	n.refusals.Add(1)
	if now := time.Now(); n.refusedLast.allows(why.Error(), now) && n.options.Report != nil {
		n.options.Report(Event{Err: fmt.Errorf("a call from %s is refused: %w", from, why)})
	}
}

// sparingly says which reasons are worth a report. It keeps those of the last minute.
type sparingly struct {
	mu   sync.Mutex
	last time.Time
	told map[string]time.Time
}

func (s *sparingly) allows(reason string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.told, func(_ string, at time.Time) bool { return now.Sub(at) >= time.Minute })
	if _, again := s.told[reason]; again || now.Sub(s.last) < time.Second {
		return false
	}
	if s.told == nil {
		s.told = map[string]time.Time{}
	}
	s.told[reason], s.last = now, now
	return true
}

// Status describes what goes to and comes from another node. Bytes are those of entries and
// estimates of the rest.
type Status struct {
	Node      uint64
	Address   string // at which it is called
	Connected bool   // both streams to it work
	// Why is what the streams to it failed with last; empty while they work.
	Why                string
	Lanes              []LaneStatus
	Sent               uint64 // messages to it
	SentBytes          uint64
	SentFileBytes      uint64 // of checkpoints, which the messages do not have
	Received, NotTaken uint64 // messages from it; those that the consensus had no room for
}

// LaneStatus describes one lane to another node.
type LaneStatus struct {
	Lane        string // as in Event
	QueuedBytes int64
	Dropped     uint64 // messages, because the queue was full or there was no stream
}

// Status describes the other nodes, in the order of their ids.
func (n *Network) Status() []Status {
	members := *n.members.Load()
	var all []Status
	for _, id := range slices.Sorted(maps.Keys(members)) {
		m := members[id]
		s := Status{
			Node: id, Address: m.link.Load().address, Connected: true, Sent: m.sentMessages.Load(), SentBytes: m.sentBytes.Load(),
			SentFileBytes: m.sentFileBytes.Load(), Received: m.received.Load(), NotTaken: m.unwanted.Load(),
		}
		for _, l := range m.lanes() {
			open, bytes, dropped := l.queue.state()
			s.Connected = s.Connected && open
			s.Lanes = append(s.Lanes, LaneStatus{laneText(l.kind), bytes, dropped})
			if !open { // one that has not ended yet has no reason to tell
				s.Why = cmp.Or(n.why(laneName{id, l.kind}), s.Why)
			}
		}
		all = append(all, s)
	}
	return all
}

func (n *Network) why(name laneName) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.reported[name]; why != works { // a lane that has just ended has no reason yet
		return why
	}
	return ""
}

// Refused returns how many calls were refused.
func (n *Network) Refused() uint64 { return n.refusals.Load() }

// Close ends all streams and waits for that. Idempotent.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	members := *n.members.Load()
	n.members.Store(&map[uint64]*member{})
	n.mu.Unlock()
	n.cancel()
	for _, m := range members {
		m.close()
	}
	n.server.Stop()
	_ = n.listener.Close() // by Stop already, if it was served
	n.running.Wait()
}
