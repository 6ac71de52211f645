package peer

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testCluster = 0xc1a5_7e40_0000_0001
	testGroup   = 5
)

// inbox is a Receiver that keeps what it gets.
type inbox struct {
	mu       sync.Mutex
	messages []*pb.Message
	full     bool
	gone     map[uint64]int // by node: how often it was said to be
}

func (i *inbox) Deliver(m *pb.Message) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.full {
		return false
	}
	i.messages = append(i.messages, m)
	return true
}

func (i *inbox) Gone(node uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone == nil {
		i.gone = map[uint64]int{}
	}
	i.gone[node]++
}

// isGone returns how often a node was said to be gone.
func (i *inbox) isGone(node uint64) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gone[node]
}

func (i *inbox) all() []*pb.Message {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]*pb.Message(nil), i.messages...)
}

var testLayout = Layout{Partitions: 4, Hash: "a hash"}

func options(node uint64) Options {
	return Options{Cluster: testCluster, Node: node, Group: testGroup, Listen: "127.0.0.1:0", Layout: testLayout}
}

// start returns a network that runs, until the test ends.
func start(t testing.TB, o Options, r Receiver) *Network {
	n, err := New(o)
	require.NoError(t, err)
	n.Start(r)
	t.Cleanup(n.Close)
	return n
}

// pair starts nodes 1 and 2, of which the first calls the second through a proxy, and waits until
// they are connected.
func pair(t testing.TB, change func(*Options)) (n1, n2 *Network, to1, to2 *inbox, p *proxy) {
	to1, to2 = &inbox{}, &inbox{}
	o1, o2 := options(1), options(2)
	if change != nil {
		change(&o1)
		change(&o2)
	}
	n1, n2 = start(t, o1, to1), start(t, o2, to2)
	p = newProxy(t, n2.Addr())
	require.NoError(t, n2.SetMembers(map[uint64]string{1: n1.Addr(), 2: n2.Addr()}))
	require.NoError(t, n1.SetMembers(map[uint64]string{1: n1.Addr(), 2: p.addr()}))
	connected(t, n1, true)
	connected(t, n2, true)
	return n1, n2, to1, to2, p
}

// disconnected waits until both streams of a node to node 2 have ended.
func disconnected(t testing.TB, n *Network) {
	t.Helper()
	testwait.Until(t, func() bool {
		for _, l := range (*n.members.Load())[2].lanes() {
			if open, _, _ := l.queue.state(); open {
				return false
			}
		}
		return true
	})
}

// connected waits until a node is connected to all others by both streams, or to none so.
func connected(t testing.TB, n *Network, want bool) {
	t.Helper()
	testwait.Until(t, func() bool {
		for _, s := range n.Status() {
			if s.Connected != want {
				return false
			}
		}
		return true
	})
}

func message(kind pb.MessageType, from, to uint64, data ...[]byte) *pb.Message {
	m := &pb.Message{Type: &kind, From: &from, To: &to, Term: new(uint64(7))}
	for i, d := range data {
		m.Entries = append(m.Entries, &pb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(7)), Data: d})
	}
	return m
}

// proxy forwards connections, until it is cut.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.setCut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(in, out) {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
			p.wg.Go(func() {
				_, _ = io.Copy(c[0], c[1])
				_, _ = c[0].Close(), c[1].Close()
			})
		}
	}
}

// add returns false if the proxy is cut.
func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.cut
}

// setCut ends all connections and lets no other through, or lets them through again.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// dropped and queued are sums over both lanes.
func dropped(s Status) (n uint64) {
	for _, l := range s.Lanes {
		n += l.Dropped
	}
	return n
}

func queued(s Status) (n int64) {
	for _, l := range s.Lanes {
		n += l.QueuedBytes
	}
	return n
}
