package peer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// maxNew bounds the members that the configuration of this node does not have yet: as many as a
// cluster may have nodes (replicated.MaxNodes).
const maxNew = 16

// whereabouts is the address of a node as of an entry of the log.
type whereabouts struct {
	address string // empty: it is not known
	at      uint64
}

// member is another node. The streams by which it calls this node go on when its address changes.
type member struct {
	id   uint64
	link atomic.Pointer[link] // never nil

	// Guarded by Network.mu.
	configured string      // the address that SetMembers has said; empty: the member is a new one
	told       whereabouts // the newest that the node has told

	sentMessages, sentBytes, received, unwanted atomic.Uint64
	sentFileBytes                               atomic.Uint64 // of checkpoints

	mu      sync.Mutex
	inbound map[peerpb.Lane]chan struct{} // closed when a newer stream takes the place
}

// link is what calls a member at one address.
type link struct {
	address        string
	creds          credentials.TransportCredentials
	pause          time.Duration // before the second attempt
	cancel         context.CancelFunc
	small, appends *lane
	forwards       *grpc.ClientConn // nil: it was not made
}

// SetConfiguration says how far this node knows the configurations of the cluster: as of the entry
// at, with next as the id of the next node that joins. It is called before the SetMembers that
// follows from it. Without it, or with 0, no node is a new member.
func (n *Network) SetConfiguration(at, next uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at, n.next = at, next
}

// SetMembers says which other nodes there are, by id, and their addresses, and that of this node if
// it is among them, which it tells the others. Streams of those that are gone end; those that are
// called at another address now are called again. New members (see meet) stay, unless
// SetConfiguration has said that their ids were used.
//
// Errors: kv.ErrInvalidArgument for an address that cannot be used, kv.ErrClosed; nothing has
// changed then.
func (n *Network) SetMembers(addresses map[uint64]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return kv.ErrClosed
	}
	before, self := n.self.Load(), &whereabouts{addresses[n.options.Node], n.at}
	moved := before.address != "" && before.address != self.address // the others are told by new streams
	old, next, links := *n.members.Load(), map[uint64]*member{}, map[*member]*link{}
	for _, id := range slices.Sorted(maps.Keys(addresses)) {
		if id == n.options.Node {
			continue
		}
		m := old[id]
		if m == nil {
			m = newMember(id)
		}
		next[id] = m
		ways := n.ways(addresses[id], m.told)
		address, now := ways[0], m.link.Load()
		if now != nil && slices.Contains(ways, now.address) {
			if address = now.address; !moved {
				continue
			}
		}
		l, err := n.newLink(m, address)
		if err != nil {
			for _, l := range links {
				l.close()
			}
			return err
		}
		links[m] = l
	}
	var gone []*member
	for id, m := range old {
		switch {
		case next[id] != nil:
		case m.configured == "" && id >= n.next:
			next[id] = m
		default:
			gone = append(gone, m)
		}
	}
	n.self.Store(self)
	for id, m := range next {
		m.configured = addresses[id]
		if l := links[m]; l != nil && m.link.Load() == nil {
			m.link.Store(l)
		}
	}
	n.members.Store(&next)
	for m, l := range links {
		n.use(m, l)
	}
	for _, m := range gone {
		n.forget(m)
	}
	return nil
}

// ways returns the addresses of a member, the one to try first before the other: what the node has
// told counts while this node has not come so far in the log. The caller holds n.mu.
func (n *Network) ways(configured string, told whereabouts) []string {
	switch {
	case configured == "":
		return []string{told.address}
	case told.at <= n.at || told.address == configured:
		return []string{configured}
	}
	return []string{told.address, configured}
}

// use calls a member by a link from now on. The caller holds n.mu.
func (n *Network) use(m *member, l *link) {
	if older := m.link.Swap(l); older != nil && older != l {
		older.close()
	}
	l.start(n)
}

// forget ends a member that is none any more. The caller holds n.mu.
func (n *Network) forget(m *member) {
	m.close()
	maps.DeleteFunc(n.reported, func(name laneName, _ string) bool { return name.node == m.id })
}

// elsewhere calls the member of a lane that does not get through at its other address, if it has
// one. It reports whether the lane has to end.
func (n *Network) elsewhere(l *lane, pause time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := l.to
	if n.closed || n.member(m.id) != m || m.link.Load() != l.link {
		return true
	}
	for _, other := range l.link.lanes() {
		if open, _, _ := other.queue.state(); open {
			return false
		}
	}
	ways := n.ways(m.configured, m.told)
	address := ways[(slices.Index(ways, l.link.address)+1)%len(ways)]
	if address == l.link.address {
		return false
	}
	next, err := n.newLink(m, address)
	if err != nil {
		return false
	}
	next.pause = pause
	n.use(m, next)
	return true
}

// from returns the member that calls.
func (n *Network) from(hello *identity) (*member, error) {
	if m := n.member(hello.from); m != nil {
		return m, nil
	}
	return nil, notMember(hello.from)
}

func notMember(id uint64) error {
	return fmt.Errorf("node %d is no member of the group, as far as this node knows: it was removed, or is to be added first", id)
}

// isNew reports whether the configuration of this node does not reach to an id yet.
func (n *Network) isNew(id uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next != 0 && id >= n.next
}

// meet returns the member that begins a stream, and heeds the address that it tells. A node that was
// added after what this node knows of the log may be the leader that sends the rest of it: it becomes a
// new member, until its streams end or SetMembers decides.
func (n *Network) meet(hello *identity) (*member, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := hello.whereabouts
	if m := n.member(hello.from); m != nil {
		n.heed(m, told)
		return m, nil
	}
	if n.closed || n.next == 0 || hello.from < n.next || told.address == "" {
		return nil, notMember(hello.from)
	}
	refuse := func(why error) (*member, error) {
		return nil, fmt.Errorf("%w; the address that it tells cannot be used meanwhile: %w", notMember(hello.from), why)
	}
	members := maps.Clone(*n.members.Load())
	count := 0
	for _, m := range members {
		if m.configured == "" {
			count++
		}
	}
	if count >= maxNew {
		return refuse(fmt.Errorf("%d such nodes call this one already", count))
	}
	as := descriptor.Node{Cluster: hello.cluster, Node: hello.from, Members: map[uint64]string{hello.from: told.address}}
	if err := as.Check(); err != nil {
		return refuse(err)
	}
	if err := n.CheckAddress(told.address); err != nil {
		return refuse(err)
	}
	m := newMember(hello.from)
	l, err := n.newLink(m, told.address)
	if err != nil {
		return refuse(err)
	}
	m.told = told
	m.link.Store(l)
	members[m.id] = m
	n.members.Store(&members)
	n.use(m, l)
	return m, nil
}

// heed calls a member at the address that it tells, if this node has not come so far in the log. An
// address that cannot be used is as good as none. The caller holds n.mu.
func (n *Network) heed(m *member, told whereabouts) {
	if told.at < m.told.at || m.configured != "" && told.at <= n.at || n.closed || n.CheckAddress(told.address) != nil {
		return
	}
	again := m.told.address == told.address
	m.told = told
	address := n.ways(m.configured, told)[0]
	if again || address == m.link.Load().address {
		return
	}
	if l, err := n.newLink(m, address); err == nil {
		n.use(m, l)
	}
}

// left notes that a stream of a member has ended. A new member without streams is none any more.
func (n *Network) left(m *member, kind peerpb.Lane, replaced <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.mu.Lock()
	if replaced != nil && m.inbound[kind] == replaced {
		delete(m.inbound, kind)
	}
	streams := len(m.inbound)
	m.mu.Unlock()
	if streams > 0 || m.configured != "" || n.member(m.id) != m {
		return
	}
	members := maps.Clone(*n.members.Load())
	delete(members, m.id)
	n.members.Store(&members)
	n.forget(m)
}

// newMember returns a member without a link.
func newMember(id uint64) *member { return &member{id: id, inbound: map[peerpb.Lane]chan struct{}{}} }

// newLink returns a link, which is not started.
func (n *Network) newLink(m *member, address string) (*link, error) {
	creds := insecure.NewCredentials()
	if n.options.TLS != nil {
		_, client, err := n.options.TLS.Nodes("h2", func(server certificate.Node) error {
			if want := (certificate.Node{Cluster: n.options.Cluster, ID: m.id}); server != want {
				return fmt.Errorf("%s has the certificate of %s, want that of %s", address, server, want)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", kv.ErrInvalidArgument, err)
		}
		creds = credentials.NewTLS(client)
	} else if err := checkLoopback(address); err != nil {
		return nil, fmt.Errorf("node %d: %w", m.id, err)
	}
	l := &link{address: address, creds: creds, pause: n.firstPause}
	for _, made := range []struct {
		to    **lane
		kind  peerpb.Lane
		bytes int64
	}{{&l.small, peerpb.Lane_LANE_SMALL, smallQueueBytes}, {&l.appends, peerpb.Lane_LANE_APPENDS, appendsQueueBytes}} {
		conn, err := dial(address, creds)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%w: address of node %d: %w", kv.ErrInvalidArgument, m.id, err)
		}
		*made.to = &lane{network: n, to: m, link: l, kind: made.kind, queue: newQueue(made.bytes), conn: conn, called: make(chan struct{}, 1)}
	}
	var err error
	if l.forwards, err = dial(address, creds); err != nil {
		l.close()
		return nil, fmt.Errorf("%w: address of node %d: %w", kv.ErrInvalidArgument, m.id, err)
	}
	return l, nil
}

// lanes returns the lanes that were made.
func (l *link) lanes() (lanes []*lane) {
	for _, made := range []*lane{l.small, l.appends} {
		if made != nil {
			lanes = append(lanes, made)
		}
	}
	return lanes
}

func (l *link) start(n *Network) {
	ctx, cancel := context.WithCancel(n.ctx)
	l.cancel = cancel
	for _, lane := range l.lanes() {
		n.running.Go(func() { lane.run(ctx) })
	}
}

// close ends what a link has under way.
func (l *link) close() {
	if l.cancel != nil {
		l.cancel()
	}
	for _, lane := range l.lanes() {
		_ = lane.conn.Close() // its streams end; nothing else can fail
	}
	if l.forwards != nil {
		_ = l.forwards.Close() // likewise
	}
}

// lanes returns those to the member.
func (m *member) lanes() []*lane { return m.link.Load().lanes() }

// close ends what a member has under way.
func (m *member) close() {
	m.link.Load().close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, replaced := range m.inbound {
		close(replaced)
	}
	m.inbound = nil
}

// member returns a member, nil if there is none with the id.
func (n *Network) member(id uint64) *member { return (*n.members.Load())[id] }
