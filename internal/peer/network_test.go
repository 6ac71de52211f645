package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// Messages arrive whole and, those of one kind, in order: short ones, long ones, and those that
// are longer than a packet.
func TestMessagesArrive(t *testing.T) {
	n1, n2, to1, to2, _ := pair(t, nil)
	long := bytes.Repeat([]byte("long"), packetBytes)
	var appends []*pb.Message
	for i := range 20 {
		appends = append(appends, message(pb.MsgApp, 1, 2, fmt.Append(nil, i), long[:i*packetBytes/5]))
	}
	n1.Send(appends)
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2), message(pb.MsgHeartbeat, 1, 9)})
	n2.Send([]*pb.Message{message(pb.MsgAppResp, 2, 1)})
	testwait.Until(t, func() bool { return len(to2.all()) == 21 && len(to1.all()) == 1 })
	require.Equal(t, pb.MsgAppResp, to1.all()[0].GetType())
	next := 0
	for _, m := range to2.all() {
		if m.GetType() == pb.MsgApp {
			require.True(t, proto.Equal(appends[next], m), "message %d", next)
			next++
		}
	}
	require.Equal(t, 20, next)
	s := n1.Status()
	require.Len(t, s, 1)
	require.Equal(t, uint64(2), s[0].Node)
	require.Zero(t, dropped(s[0]))
	require.Equal(t, uint64(1), n1.droppedAlien.Load(), "the one to node 9")
	testwait.Until(t, func() bool { s := n1.Status()[0]; return s.Sent == 21 && queued(s) == 0 })
	require.Equal(t, uint64(1), n1.Status()[0].Received)
}

// What the consensus has no room for is dropped and counted.
func TestReceiverThatIsFull(t *testing.T) {
	n1, n2, _, to2, _ := pair(t, nil)
	to2.mu.Lock()
	to2.full = true
	to2.mu.Unlock()
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
	testwait.Until(t, func() bool { return n2.Status()[0].NotTaken == 1 })
}

// reports collects events.
type reports struct {
	mu     sync.Mutex
	events []Event
}

func (r *reports) report(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *reports) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Err != nil && bytes.Contains([]byte(e.Err.Error()), []byte(text)) {
			return true
		}
	}
	return false
}

// A cut ends the streams and drops what is sent; afterwards they are made again.
func TestCut(t *testing.T) {
	n1, _, _, to2, p := pair(t, nil)
	for range 2 {
		p.setCut(true)
		disconnected(t, n1)
		before := n1.Status()[0]
		testwait.Until(t, func() bool { return n1.Status()[0].Why != "" })
		n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2), message(pb.MsgApp, 1, 2)})
		require.Equal(t, dropped(before)+2, dropped(n1.Status()[0]))
		require.Zero(t, queued(n1.Status()[0]))
		p.setCut(false)
		connected(t, n1, true)
		require.Empty(t, n1.Status()[0].Why)
		have := len(to2.all())
		n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
		testwait.Until(t, func() bool { return len(to2.all()) > have })
	}
}

// A node is said to be gone when a stream to it has ended and another one is refused, and not when
// another one can be made at once, nor when there never was one.
func TestANodeThatIsGone(t *testing.T) {
	n1, n2, to1, to2, p := pair(t, nil)
	addresses := map[uint64]string{1: n1.Addr(), 2: p.addr(), 3: "127.0.0.1:1"}
	require.NoError(t, n1.SetMembers(addresses))
	n2.Close()
	testwait.Until(t, func() bool { return to1.isGone(2) == 2 }, "both lanes say so")
	testwait.Until(t, func() bool { return n1.Status()[1].Why != "" })

	again := options(2)
	again.Listen = n2.Addr()
	n2 = start(t, again, to2)
	require.NoError(t, n2.SetMembers(map[uint64]string{1: n1.Addr()}))
	testwait.Until(t, func() bool { return n1.Status()[0].Connected })
	streams := func() (n int) {
		to2.mu.Lock()
		defer to2.mu.Unlock()
		return len(to2.messages)
	}
	for range 2 { // connections end, and others are made
		p.setCut(true)
		p.setCut(false)
		have := streams()
		testwait.Until(t, func() bool {
			n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
			return streams() > have
		})
	}
	require.Zero(t, to1.isGone(3))
	n1.Close()
}

// A node that calls another one is there: that one calls it at once, and not when its pause is over.
func TestANodeThatCallsIsCalledAtOnce(t *testing.T) {
	var r reports
	n2 := start(t, options(2), &inbox{})
	o := options(1)
	o.Report = r.report
	n1 := start(t, o, &inbox{})
	n1.firstPause = time.Hour
	require.NoError(t, n1.SetMembers(map[uint64]string{2: n2.Addr()}))
	testwait.Until(t, func() bool { return r.has("node 1 is no member of the group") })
	require.NoError(t, n2.SetMembers(map[uint64]string{1: n1.Addr()}))
	connected(t, n1, true)
}

// A node that is removed is cut off, and can call again when it is added.
func TestRemovedNode(t *testing.T) {
	var r reports
	n1, n2, _, to2, p := pair(t, func(o *Options) { o.Report = r.report })
	require.NoError(t, n2.SetMembers(nil))
	disconnected(t, n1)
	testwait.Until(t, func() bool { return r.has("node 1 is no member of the group") })
	require.NotZero(t, n2.Refused())
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
	require.Empty(t, to2.all())
	require.NoError(t, n2.SetMembers(map[uint64]string{1: n1.Addr()}))
	connected(t, n1, true)

	// Another address for the same node.
	require.NoError(t, n1.SetMembers(map[uint64]string{2: n2.Addr()}))
	connected(t, n1, true)
	p.setCut(true)
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
	testwait.Until(t, func() bool { return len(to2.all()) == 1 })
}

func TestOptionsThatDoNotFit(t *testing.T) {
	for what, change := range map[string]func(*Options){
		"no cluster":  func(o *Options) { o.Cluster = 0 },
		"no id":       func(o *Options) { o.Node = 0 },
		"no loopback": func(o *Options) { o.Listen = "0.0.0.0:0" },
		"a name":      func(o *Options) { o.Listen = "example.org:0" },
		"no port":     func(o *Options) { o.Listen = "127.0.0.1" },
		"no authority": func(o *Options) {
			o.TLS = new(certificate.Server)
		},
	} {
		o := options(1)
		change(&o)
		_, err := New(o)
		require.ErrorIs(t, err, kv.ErrInvalidArgument, what)
	}
	o := options(1)
	o.Listen = "127.0.0.1:99999"
	_, err := New(o)
	require.ErrorContains(t, err, "listen for the other nodes")

	n := start(t, options(1), &inbox{})
	require.ErrorIs(t, n.SetMembers(map[uint64]string{2: "127.0.0.1:1", 3: "10.0.0.1:7"}), kv.ErrInvalidArgument)
	require.ErrorIs(t, n.SetMembers(map[uint64]string{2: "127.0.0.1:1", 3: "nonsense"}), kv.ErrInvalidArgument)
	require.Empty(t, n.Status(), "nothing has changed")
	require.NoError(t, n.SetMembers(map[uint64]string{2: "127.0.0.1:1"}))
	n.Close()
	n.Close()
	require.ErrorIs(t, n.SetMembers(map[uint64]string{2: "127.0.0.1:1"}), kv.ErrClosed)
	n.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})

	never, err := New(options(1))
	require.NoError(t, err)
	never.Close()
}

// caller calls a node by hand.
func caller(t *testing.T, n *Network) peerpb.PeerServiceClient {
	conn, err := dial(n.Addr(), insecure.NewCredentials())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return peerpb.NewPeerServiceClient(conn)
}

// call makes a stream, sends packets, and returns what it ends with.
func call(t *testing.T, c peerpb.PeerServiceClient, md metadata.MD, send ...*peerpb.Packet) error {
	stream, err := c.Messages(metadata.NewOutgoingContext(testwait.Context(t), md))
	require.NoError(t, err)
	for _, p := range send {
		_ = stream.Send(p) // the stream may have ended; then it says why below
	}
	return endOf(stream.RecvMsg(new(peerpb.MessagesResponse)))
}

// Whatever differs from what a node expects is refused with the reason.
func TestCallsThatAreRefused(t *testing.T) {
	var r reports
	o := options(2)
	o.Report = r.report
	to := &inbox{}
	n := start(t, o, to)
	require.NoError(t, n.SetMembers(map[uint64]string{1: "127.0.0.1:1"}))
	client := caller(t, n)
	good := identity{cluster: testCluster, from: 1, to: 2, lane: peerpb.Lane_LANE_SMALL, layout: testLayout}
	hello := func(change func(*peerpb.Hello)) metadata.MD {
		h := &peerpb.Hello{
			Version: protocolVersion, Cluster: good.cluster, From: good.from, To: good.to, Lane: good.lane,
			Partitions: uint32(good.layout.Partitions), Hash: good.layout.Hash,
		}
		change(h)
		b, err := proto.Marshal(h)
		require.NoError(t, err)
		return metadata.Pairs(helloKey, string(b))
	}
	for want, md := range map[string]metadata.MD{
		"says 0 times which node it is":            {},
		"says 2 times which node it is":            metadata.Join(good.metadata(), good.metadata()),
		"in 3 bytes that cannot be read":           metadata.Pairs(helloKey, "\xff\xff\xff"),
		"in 257 bytes that cannot be read":         metadata.Pairs(helloKey, string(make([]byte, maxHelloBytes+1))),
		"it speaks version 1, this node version 2": hello(func(h *peerpb.Hello) { h.Version = 1 }),
		"it belongs to cluster 0000000000000009":   hello(func(h *peerpb.Hello) { h.Cluster = 9 }),
		"it means node 3, this is node 2":          hello(func(h *peerpb.Hello) { h.To = 3 }),
		"it says to be node 2: two nodes":          hello(func(h *peerpb.Hello) { h.From = 2 }),
		"it says to be node 0: two nodes":          hello(func(h *peerpb.Hello) { h.From = 0 }),
		"node 9 is no member of the group":         hello(func(h *peerpb.Hello) { h.From = 9 }),
		"there is no lane 7":                       hello(func(h *peerpb.Hello) { h.Lane = 7 }),
		"the store of node 1 has 5 partitions":     hello(func(h *peerpb.Hello) { h.Partitions = 5 }),
		`has 4 partitions by "other hash"`:         hello(func(h *peerpb.Hello) { h.Hash = "other hash" }),
	} {
		require.ErrorContains(t, call(t, client, md), want)
	}
	require.True(t, r.has("a call from 127.0.0.1:"))
	heartbeat, err := proto.Marshal(message(pb.MsgHeartbeat, 1, 2))
	require.NoError(t, err)
	alien, err := proto.Marshal(message(pb.MsgHeartbeat, 9, 2))
	require.NoError(t, err)
	for want, packet := range map[string]*peerpb.Packet{
		"a packet of group 6":              {Group: 6},
		"a message of 1 bytes that cannot": {Group: testGroup, Messages: [][]byte{{0xff}}},
		"a message from node 9 to node 2":  {Group: testGroup, Messages: [][]byte{alien}},
		"both a part and 1 messages":       {Group: testGroup, Messages: [][]byte{heartbeat}, Part: []byte("x")},
		"a message from node 0 to node 0":  {Group: testGroup, Last: true},
	} {
		require.ErrorContains(t, call(t, client, good.metadata(), packet), want)
	}
	require.ErrorContains(t, call(t, client, good.metadata(), &peerpb.Packet{Group: testGroup, Part: []byte("x")}, &peerpb.Packet{Group: testGroup}), "the message before is not whole")
	require.Empty(t, to.all())

	// A read that node 1 passes on for another member, and for none.
	read := message(pb.MsgReadIndex, 9, 2)
	b, err := proto.Marshal(read)
	require.NoError(t, err)
	require.ErrorContains(t, call(t, client, good.metadata(), &peerpb.Packet{Group: testGroup, Messages: [][]byte{b}}), "from node 9")
	require.NoError(t, n.SetMembers(map[uint64]string{1: "127.0.0.1:1", 9: "127.0.0.1:1"}))
	stream, err := client.Messages(metadata.NewOutgoingContext(testwait.Context(t), good.metadata()))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&peerpb.Packet{Group: testGroup, Messages: [][]byte{b}}))
	testwait.Until(t, func() bool { return len(to.all()) == 1 })

	// A read of this node that node 1 passes back.
	b, err = proto.Marshal(message(pb.MsgReadIndex, 2, 2))
	require.NoError(t, err)
	heartbeat, err = proto.Marshal(message(pb.MsgHeartbeat, 1, 2))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&peerpb.Packet{Group: testGroup, Messages: [][]byte{b, heartbeat}}))
	testwait.Until(t, func() bool { return len(to.all()) == 2 })
	require.Equal(t, pb.MsgHeartbeat, to.all()[1].GetType())

	// A newer stream takes the place of the older one.
	newer, err := client.Messages(metadata.NewOutgoingContext(testwait.Context(t), good.metadata()))
	require.NoError(t, err)
	require.ErrorContains(t, endOf(stream.RecvMsg(new(peerpb.MessagesResponse))), "has made a newer stream")
	require.NoError(t, newer.CloseSend())
	require.NoError(t, newer.RecvMsg(new(peerpb.MessagesResponse)))
}

// Nodes whose stores are divided in another way do not talk, and both say why.
func TestNodesWithOtherPartitions(t *testing.T) {
	var networks []*Network
	var told [2]reports
	for i := range told {
		o := options(uint64(i + 1))
		o.Layout.Partitions += i
		o.Report = told[i].report
		networks = append(networks, start(t, o, &inbox{}))
	}
	for _, n := range networks {
		require.NoError(t, n.SetMembers(map[uint64]string{1: networks[0].Addr(), 2: networks[1].Addr()}))
	}
	for i, n := range networks {
		testwait.Until(t, func() bool {
			return strings.Contains(n.Status()[0].Why, fmt.Sprintf("node %d refuses the call: the store of node %d has %d partitions", 2-i, i+1, 4+i)) &&
				told[i].has("a call from 127.0.0.1:") && told[i].has("--partitions")
		})
		require.False(t, n.Status()[0].Connected)
	}
}

// Nodes of which one was made with other first nodes do not talk, and both say why. Neither tells
// the other one that it was removed, which it cannot know.
func TestNodesThatBeganWithOthers(t *testing.T) {
	var networks []*Network
	var told [2]reports
	for i, first := range [][]uint64{{2, 1, 3}, {2}} {
		o := options(uint64(i + 1))
		o.Report = told[i].report
		n, err := New(o)
		require.NoError(t, err)
		t.Cleanup(n.Close)
		n.SetFirst(first)
		n.Judge(func(node, _ uint64) error { return fmt.Errorf("node %d was removed", node) })
		n.Start(&inbox{})
		networks = append(networks, n)
	}
	for _, n := range networks {
		require.NoError(t, n.SetMembers(map[uint64]string{1: networks[0].Addr(), 2: networks[1].Addr()}))
	}
	for i, want := range []string{
		"node 2 refuses the call: the cluster of node 1 began with the nodes [1 2 3], that of node 2 with the nodes [2]",
		"node 1 refuses the call: the cluster of node 2 began with the nodes [2], that of node 1 with the nodes [1 2 3]",
	} {
		testwait.Until(t, func() bool {
			return strings.Contains(networks[i].Status()[0].Why, want) && told[i].has("a call from 127.0.0.1:") && told[i].has("the same --members")
		})
		require.False(t, told[i].expelled())
		require.False(t, networks[i].Status()[0].Connected)
	}
}

// Nodes of two incarnations of a cluster do not talk, and both say why. A node that a recovery has taken
// out is told so by the recovered one; and that is told nothing by one that has not heard of the recovery.
func TestNodesOfTwoIncarnations(t *testing.T) {
	for name, test := range map[string]struct {
		incarnations [2]kv.Incarnation
		expelled     [2]bool // may be, if the other one says so
	}{
		"one was recovered":  {[2]kv.Incarnation{{}, {Recoveries: 1, ID: 0xb}}, [2]bool{true, false}},
		"each by itself":     {[2]kv.Incarnation{{Recoveries: 1, ID: 0xa}, {Recoveries: 1, ID: 0xb}}, [2]bool{true, true}},
		"one of them twice":  {[2]kv.Incarnation{{Recoveries: 1, ID: 0xa}, {Recoveries: 2, ID: 0xb}}, [2]bool{true, false}},
		"and knows no other": {[2]kv.Incarnation{{Recoveries: 1, ID: 0xa}, {Recoveries: 2, ID: 0xb}}, [2]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			var networks []*Network
			var told [2]reports
			for i, incarnation := range test.incarnations {
				o := options(uint64(i + 1))
				o.Report = told[i].report
				n, err := New(o)
				require.NoError(t, err)
				t.Cleanup(n.Close)
				n.SetIncarnation(incarnation)
				if test.expelled != [2]bool{} {
					n.Judge(func(node, _ uint64) error { return fmt.Errorf("node %d was removed", node) })
				}
				n.Start(&inbox{})
				networks = append(networks, n)
			}
			for _, n := range networks {
				require.NoError(t, n.SetMembers(map[uint64]string{1: networks[0].Addr(), 2: networks[1].Addr()}))
			}
			for i, n := range networks {
				want := fmt.Sprintf("the cluster of node %d is of incarnation %s, that of node %d of incarnation %s", i+1, test.incarnations[i], 2-i, test.incarnations[1-i])
				if test.expelled[i] {
					want = fmt.Sprintf("node %d was removed", i+1)
				}
				testwait.Until(t, func() bool {
					return strings.Contains(n.Status()[0].Why, want) && told[i].expelled() == test.expelled[i]
				})
				require.False(t, n.Status()[0].Connected)
			}
		})
	}
}

// A node that answers as another one gets nothing.
func TestAnswersThatAreRefused(t *testing.T) {
	me := identity{cluster: testCluster, from: 1, to: 2, lane: peerpb.Lane_LANE_SMALL, layout: testLayout}
	answer := identity{cluster: testCluster, from: 2, to: 1, lane: peerpb.Lane_LANE_SMALL, layout: testLayout}
	require.NoError(t, checkAnswer(answer.metadata(), me))
	divided := answer
	divided.layout.Partitions++
	require.ErrorContains(t, checkAnswer(divided.metadata(), me), "the store of node 2 has 5 partitions")
	other, mine := answer, me
	other.first, mine.first = []uint64{2}, []uint64{1, 2}
	require.ErrorContains(t, checkAnswer(other.metadata(), mine), "the cluster of node 2 began with the nodes [2]")
	recovered := answer
	recovered.incarnation = kv.Incarnation{Recoveries: 1, ID: 9}
	require.ErrorContains(t, checkAnswer(recovered.metadata(), me), "the cluster of node 2 is of incarnation 1-0000000000000009, that of node 1 of incarnation 0")
	require.NoError(t, checkAnswer(other.metadata(), me), "it does not know")
	require.NoError(t, checkAnswer(answer.metadata(), mine))
	for _, change := range []func(*identity){
		func(i *identity) { i.cluster++ }, func(i *identity) { i.from++ }, func(i *identity) { i.to++ }, func(i *identity) { i.lane++ },
	} {
		other := answer
		change(&other)
		require.ErrorContains(t, checkAnswer(other.metadata(), me), "an address is wrong")
	}
	require.Error(t, checkAnswer(nil, me))
}

// nodes returns the TLS of nodes of a cluster.
func nodes(t *testing.T, cluster uint64, ids ...uint64) map[uint64]*certificate.Server {
	ca, pairs, err := certificate.DevNodes(cluster, ids, time.Now(), time.Hour)
	require.NoError(t, err)
	servers := map[uint64]*certificate.Server{}
	for id, p := range pairs {
		fsys := vfs.NewMem()
		for name, data := range map[string][]byte{"ca.pem": ca, "node.pem": p.Certificate, "node.key": p.Key} {
			require.NoError(t, vfs.WriteAtomic(fsys, name, data))
		}
		servers[id], err = certificate.Open(fsys, certificate.Files{Certificate: "node.pem", Key: "node.key", ClientCA: "ca.pem"}, nil)
		require.NoError(t, err)
	}
	return servers
}

func TestCertificates(t *testing.T) {
	tls := nodes(t, testCluster, 1, 2, 3)
	n1, _, _, to2, _ := pair(t, func(o *Options) { o.TLS = tls[o.Node] })
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
	testwait.Until(t, func() bool { return len(to2.all()) == 1 })

	to := &inbox{}
	o := options(2)
	o.TLS = tls[2]
	n2 := start(t, o, to)
	require.NoError(t, n2.SetMembers(map[uint64]string{1: "127.0.0.1:1"}))
	for what, c := range map[string]struct {
		with *certificate.Server
		want string
	}{
		"of another node":      {tls[3], "its certificate is that of kvd-node:"},
		"of another authority": {nodes(t, testCluster, 1)[1], "certificate"},
		"of another cluster":   {nodes(t, testCluster+1, 1)[1], "certificate"},
		"none":                 {nil, ""},
	} {
		var r reports
		o := options(1)
		o.TLS, o.Report = c.with, r.report
		n, err := New(o)
		require.NoError(t, err)
		n.Start(&inbox{})
		require.NoError(t, n.SetMembers(map[uint64]string{2: n2.Addr()}))
		testwait.Until(t, func() bool { return r.has(c.want) })
		require.False(t, n.Status()[0].Connected, what)
		n.Close()
	}
	require.Empty(t, to.all())

	// Node 2 answers at the address of node 3.
	o = options(1)
	var r reports
	o.TLS, o.Report = tls[1], r.report
	n := start(t, o, &inbox{})
	require.NoError(t, n.SetMembers(map[uint64]string{3: n2.Addr()}))
	testwait.Until(t, func() bool { return r.has("has the certificate of kvd-node:") })
}

func TestQueue(t *testing.T) {
	q := newQueue(1000)
	q.put(message(pb.MsgHeartbeat, 1, 2))
	_, _, dropped := q.state()
	require.Equal(t, uint64(1), dropped, "it is closed")
	q.setOpen(true)
	q.put(message(pb.MsgApp, 1, 2, make([]byte, 2000)))
	_, bytes, dropped := q.state()
	require.Equal(t, int64(2096), bytes, "a long one is taken alone")
	require.Equal(t, uint64(1), dropped)
	q.put(message(pb.MsgHeartbeat, 1, 2))
	messages, taken := q.take()
	require.Len(t, messages, 1)
	require.Equal(t, bytes, taken)
	q.put(message(pb.MsgHeartbeat, 1, 2))
	_, _, dropped = q.state()
	require.Equal(t, uint64(3), dropped, "what was taken counts until it is sent")
	q.sent(taken)
	q.put(message(pb.MsgHeartbeat, 1, 2))
	q.setOpen(false)
	open, bytes, dropped := q.state()
	require.False(t, open)
	require.Zero(t, bytes)
	require.Equal(t, uint64(4), dropped)
}

func TestPacketsEndWithAnError(t *testing.T) {
	long := message(pb.MsgApp, 1, 2, make([]byte, packetBytes+1))
	short := message(pb.MsgHeartbeat, 1, 2)
	failed := errors.New("failed")
	for _, messages := range [][]*pb.Message{{long}, {short, long}, {short}} {
		calls := 0
		require.Equal(t, failed, packets(1, messages, func(*peerpb.Packet) error { calls++; return failed }))
		require.Equal(t, 1, calls)
	}
	r := receiver{from: 1, to: 2, part: make([]byte, maxMessageBytes)}
	require.ErrorContains(t, r.take(&peerpb.Packet{Part: []byte("x")}, nil), "a message has more than")
}

func FuzzHello(f *testing.F) {
	f.Add(identity{cluster: 1, from: 2, to: 3, lane: 1, layout: testLayout, store: 4, first: []uint64{1, 2, 300}}.metadata().Get(helloKey)[0])
	f.Add(identity{cluster: 1, from: 2, to: 3, lane: 2, layout: testLayout, whereabouts: whereabouts{"db1:7100", 5}}.metadata().Get(helloKey)[0])
	f.Fuzz(func(t *testing.T, b string) {
		i, err := readHello(metadata.Pairs(helloKey, b))
		if err != nil {
			return
		}
		again, err := readHello(i.metadata())
		require.NoError(t, err)
		require.Equal(t, i, again)
	})
}

// What a stream makes of packets is bounded by their bytes, and is from its sender.
func FuzzPackets(f *testing.F) {
	add := func(packets ...*peerpb.Packet) {
		var all []byte
		for _, p := range packets {
			b, err := proto.Marshal(p)
			require.NoError(f, err)
			all = append(append(all, byte(len(b))), b...)
		}
		f.Add(all)
	}
	b, err := proto.Marshal(message(pb.MsgApp, 1, 2, []byte("data")))
	require.NoError(f, err)
	add(&peerpb.Packet{Messages: [][]byte{b, b}})
	add(&peerpb.Packet{Part: b[:3]}, &peerpb.Packet{Part: b[3:], Last: true})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := receiver{from: 1, to: 2, forwards: func(id uint64) bool { return id == 3 }}
		total := len(b)
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			p := &peerpb.Packet{}
			if proto.Unmarshal(b[1:1+n], p) != nil {
				return
			}
			b = b[1+n:]
			err := r.take(p, func(m *pb.Message) {
				require.Equal(t, uint64(2), m.GetTo())
				require.True(t, m.GetFrom() == 1 || m.GetFrom() == 3 && m.GetType() == pb.MsgReadIndex)
			})
			require.LessOrEqual(t, len(r.part), total)
			if err != nil {
				return
			}
		}
	})
}

// A node that is gone before it answers is given up.
func TestNobodyAnswers(t *testing.T) {
	var r reports
	o := options(1)
	o.Report = r.report
	n := start(t, o, &inbox{})
	require.NoError(t, n.SetMembers(map[uint64]string{2: "127.0.0.1:1"}))
	testwait.Until(t, func() bool { return r.has("refused") })
	testwait.Until(t, func() bool { return strings.Contains(n.Status()[0].Why, "refused") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (*n.members.Load())[2].link.Load().small.stream(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// A reason is reported once a minute, and no more than one a second.
func TestRefusalsAreReportedSparingly(t *testing.T) {
	var s sparingly
	start := time.Now()
	var reported []string
	for second := range 125 {
		for _, reason := range []string{"a", "b"} {
			if s.allows(reason, start.Add(time.Duration(second)*time.Second)) {
				reported = append(reported, fmt.Sprint(second, reason))
			}
		}
	}
	require.Equal(t, []string{"0a", "1b", "60a", "61b", "120a", "121b"}, reported)
	require.Len(t, s.told, 2)
}
