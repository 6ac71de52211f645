package peer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// configure tells a network a configuration.
func configure(t *testing.T, n *Network, at, next uint64, addresses map[uint64]string) {
	t.Helper()
	n.SetConfiguration(at, next)
	require.NoError(t, n.SetMembers(addresses))
}

// arrives waits until a message gets from one node to another.
func arrives(t *testing.T, from *Network, to uint64, in *inbox) {
	t.Helper()
	have := len(in.all())
	testwait.Until(t, func() bool {
		from.Send([]*pb.Message{message(pb.MsgHeartbeat, from.options.Node, to)})
		return len(in.all()) > have
	}, fmt.Sprintf("from node %d to node %d", from.options.Node, to))
}

// statusOf returns how a node sees another one; without its id if that is no member.
func statusOf(n *Network, id uint64) Status {
	for _, s := range n.Status() {
		if s.Node == id {
			return s
		}
	}
	return Status{}
}

// A node that was added after what this node knows of the log is heard and answered, with and without
// certificates, until its streams end.
func TestANewMemberIsHeardAndAnswered(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS: ", secured), func(t *testing.T) {
			o3, o4 := options(3), options(4)
			if secured {
				tls := nodes(t, testCluster, 3, 4)
				o3.TLS, o4.TLS = tls[3], tls[4]
			}
			to3, to4 := &inbox{}, &inbox{}
			n3, n4 := start(t, o3, to3), start(t, o4, to4)
			configure(t, n3, 10, 4, map[uint64]string{3: n3.Addr()})
			configure(t, n4, 20, 5, map[uint64]string{3: n3.Addr(), 4: n4.Addr()})
			arrives(t, n4, 3, to3)
			arrives(t, n3, 4, to4)
			require.Equal(t, n4.Addr(), statusOf(n3, 4).Address)
			require.Empty(t, statusOf(n3, 4).Why)
			for _, n := range []*Network{n3, n4} { // they ask each other as members do
				n.Answer(func(_ context.Context, from uint64, _ *peerpb.AskRequest) (*peerpb.AskResponse, error) {
					return &peerpb.AskResponse{Leader: from}, nil
				})
			}
			for asks, n := range map[uint64]*Network{3: n3, 4: n4} {
				a, err := n.Ask(testwait.Context(t), 7-asks, &peerpb.AskRequest{})
				require.NoError(t, err)
				require.Equal(t, asks, a.GetLeader())
			}

			// The configuration of this node reaches it, and its streams go on.
			before := n4.Status()[0]
			configure(t, n3, 20, 5, map[uint64]string{3: n3.Addr(), 4: n4.Addr()})
			arrives(t, n4, 3, to3)
			require.Equal(t, dropped(before), dropped(n4.Status()[0]))
			n4.Close()
			disconnectedFrom(t, n3, 4)
			require.Equal(t, uint64(4), statusOf(n3, 4).Node)
		})
	}
}

func disconnectedFrom(t *testing.T, n *Network, id uint64) {
	t.Helper()
	testwait.Until(t, func() bool { return !statusOf(n, id).Connected })
}

// A new member whose streams have ended is none any more; nor is one that turns out to have been added and
// removed.
func TestANewMemberIsForgotten(t *testing.T) {
	var r reports
	o4 := options(4)
	o4.Report = r.report
	to3 := &inbox{}
	n3, n4 := start(t, options(3), to3), start(t, o4, &inbox{})
	configure(t, n3, 10, 4, map[uint64]string{3: n3.Addr()})
	configure(t, n4, 20, 5, map[uint64]string{3: n3.Addr(), 4: n4.Addr()})
	arrives(t, n4, 3, to3)
	require.NoError(t, n4.SetMembers(map[uint64]string{4: n4.Addr()}))
	testwait.Until(t, func() bool { return len(n3.Status()) == 0 })
	require.NoError(t, n4.SetMembers(map[uint64]string{3: n3.Addr(), 4: n4.Addr()}))
	arrives(t, n4, 3, to3)

	configure(t, n3, 30, 5, map[uint64]string{3: n3.Addr()})
	require.Empty(t, n3.Status())
	testwait.Until(t, func() bool { return r.has("node 4 is no member of the group") })
	n3.mu.Lock()
	defer n3.mu.Unlock()
	for name := range n3.reported {
		require.NotEqual(t, uint64(4), name.node, "nothing is kept of it")
	}
}

// begin makes a stream by hand, and waits until it is answered.
func begin(t *testing.T, c peerpb.PeerServiceClient, md metadata.MD) grpc.ClientStreamingClient[peerpb.Packet, peerpb.MessagesResponse] {
	t.Helper()
	stream, err := c.Messages(metadata.NewOutgoingContext(testwait.Context(t), md))
	require.NoError(t, err)
	header, err := stream.Header()
	require.NoError(t, err)
	require.NotEmpty(t, header.Get(helloKey))
	return stream
}

// New members are few, have addresses that can be called, and are in no other way less bound than others.
func TestNewMembersThatAreRefused(t *testing.T) {
	to := &inbox{}
	n := start(t, options(2), to)
	n.SetFirst([]uint64{1, 2})
	n.Judge(func(node, _ uint64) error {
		if node == 30 {
			return fmt.Errorf("node 30 was removed")
		}
		return nil
	})
	client := caller(t, n)
	hello := func(change func(*identity)) metadata.MD {
		i := identity{
			cluster: testCluster, from: 9, to: 2, lane: peerpb.Lane_LANE_SMALL, layout: testLayout, first: []uint64{1, 2},
			whereabouts: whereabouts{"127.0.0.1:1", 50},
		}
		change(&i)
		return i.metadata()
	}
	require.ErrorContains(t, call(t, client, hello(func(*identity) {})), "node 9 is no member", "no configuration is known")
	configure(t, n, 10, 4, map[uint64]string{1: "127.0.0.1:1"})
	for want, change := range map[string]func(*identity){
		"node 3 is no member":             func(i *identity) { i.from = 3 },
		"node 9 is no member":             func(i *identity) { i.whereabouts = whereabouts{} },
		"over loopback alone":             func(i *identity) { i.whereabouts.address = "10.0.0.1:7" },
		"means no single machine":         func(i *identity) { i.whereabouts.address = "0.0.0.0:7" },
		"want HOST:PORT":                  func(i *identity) { i.whereabouts.address = "nonsense" },
		"is no id of a node":              func(i *identity) { i.from = 1<<64 - 2 },
		"node 30 was removed":             func(i *identity) { i.from = 30 },
		"began with the nodes [7]":        func(i *identity) { i.first = []uint64{7} },
		"is of incarnation 1-":            func(i *identity) { i.incarnation = kv.Incarnation{Recoveries: 1, ID: 1} },
		"it belongs to cluster":           func(i *identity) { i.cluster++ },
		"there is no lane 7":              func(i *identity) { i.lane = 7 },
		"the store of node 9 has 5 parti": func(i *identity) { i.layout.Partitions = 5 },
	} {
		require.ErrorContains(t, call(t, client, hello(change)), want)
		testwait.Until(t, func() bool { return len(n.Status()) == 1 }, want)
	}
	question, err := client.Ask(metadata.NewOutgoingContext(testwait.Context(t), hello(func(*identity) {})))
	require.NoError(t, err)
	_, err = question.CloseAndRecv()
	require.ErrorContains(t, err, "node 9 is no member", "a question makes no new one")
	require.Len(t, n.Status(), 1)

	for id := range uint64(maxNew) {
		begin(t, client, hello(func(i *identity) { i.from = 100 + id }))
	}
	require.ErrorContains(t, call(t, client, hello(func(*identity) {})), "16 such nodes call this one already")
	require.Len(t, n.Status(), 1+maxNew)
}

// An address that makes a Hello too long for other nodes is not told.
func TestAHelloFitsWithoutItsAddress(t *testing.T) {
	i := identity{cluster: testCluster, from: 9, to: 2, layout: testLayout, whereabouts: whereabouts{strings.Repeat("a", 300) + ":1", 50}}
	got, err := readHello(i.metadata())
	require.NoError(t, err)
	require.Zero(t, got.whereabouts)
	i.whereabouts.address = "db1:7100"
	got, err = readHello(i.metadata())
	require.NoError(t, err)
	require.Equal(t, i, got)
}

// A member that has moved, as of an entry which this node has not reached, is answered where it is: also
// if this node then reads of an older address. Once it has come so far, its log counts.
func TestAMemberThatHasMovedIsAnswered(t *testing.T) {
	to2, to3 := &inbox{}, &inbox{}
	n2, n3 := start(t, options(2), to2), start(t, options(3), to3)
	const old, older = "127.0.0.1:1", "127.0.0.1:2"
	configure(t, n3, 10, 4, map[uint64]string{2: old, 3: n3.Addr()})
	configure(t, n2, 50, 4, map[uint64]string{2: n2.Addr(), 3: n3.Addr()})
	arrives(t, n2, 3, to3)
	arrives(t, n3, 2, to2)
	before := dropped(n2.Status()[0])
	configure(t, n3, 20, 4, map[uint64]string{2: older, 3: n3.Addr()})
	arrives(t, n2, 3, to3)
	arrives(t, n3, 2, to2)
	require.Equal(t, before, dropped(n2.Status()[0]), "no stream has ended")
	configure(t, n3, 50, 4, map[uint64]string{2: n2.Addr(), 3: n3.Addr()})
	arrives(t, n3, 2, to2)

	configure(t, n3, 60, 4, map[uint64]string{2: old, 3: n3.Addr()})
	require.Equal(t, old, n3.Status()[0].Address)
	arrives(t, n2, 3, to3)
}

// A node that moves while it runs tells the others so.
func TestAMemberThatMovesTellsIt(t *testing.T) {
	to2, to3 := &inbox{}, &inbox{}
	n2, n3 := start(t, options(2), to2), start(t, options(3), to3)
	first, second := newProxy(t, n2.Addr()), newProxy(t, n2.Addr())
	configure(t, n3, 10, 4, map[uint64]string{2: first.addr(), 3: n3.Addr()})
	configure(t, n2, 10, 4, map[uint64]string{2: first.addr(), 3: n3.Addr()})
	arrives(t, n2, 3, to3)
	arrives(t, n3, 2, to2)
	configure(t, n2, 20, 4, map[uint64]string{2: second.addr(), 3: n3.Addr()})
	testwait.Until(t, func() bool { return n3.Status()[0].Address == second.addr() })
	first.setCut(true)
	arrives(t, n3, 2, to2)
}

// A member is called at the address of the log if it is not at the one that it has told, and the other way
// round; one that cannot be used, or is older, does not count.
func TestAMemberThatIsNotWhereItSays(t *testing.T) {
	to2 := &inbox{}
	n2, n3 := start(t, options(2), to2), start(t, options(3), &inbox{})
	configure(t, n2, 10, 4, map[uint64]string{3: n3.Addr()}) // tells no address
	configure(t, n3, 10, 4, map[uint64]string{2: n2.Addr()})
	arrives(t, n3, 2, to2)
	client := caller(t, n3)
	tells := func(address string, at uint64) {
		i := identity{cluster: testCluster, from: 2, to: 3, lane: peerpb.Lane_LANE_SMALL, layout: testLayout, whereabouts: whereabouts{address, at}}
		begin(t, client, i.metadata())
	}
	for _, address := range []string{"", "10.0.0.1:7", "0.0.0.0:7", "nonsense"} {
		tells(address, 50)
		require.Equal(t, n2.Addr(), n3.Status()[0].Address)
	}
	tells("127.0.0.1:1", 10)
	require.Equal(t, n2.Addr(), n3.Status()[0].Address, "this node knows as much")
	tells("127.0.0.1:1", 50)
	arrives(t, n3, 2, to2)
	require.Equal(t, n2.Addr(), n3.Status()[0].Address)
	configure(t, n3, 11, 4, map[uint64]string{2: "127.0.0.1:2"})
	tells(n2.Addr(), 51)
	arrives(t, n3, 2, to2)
	n3.mu.Lock()
	n3.heed(n3.member(2), whereabouts{"127.0.0.1:1", 40}) // a call that was late
	n3.mu.Unlock()
	require.Equal(t, n2.Addr(), n3.Status()[0].Address)
}

// A read that a member passes on for a node which this one does not know yet does not end its stream.
func TestAReadOfANewNodeIsPassedOn(t *testing.T) {
	to := &inbox{}
	n := start(t, options(2), to)
	configure(t, n, 10, 4, map[uint64]string{1: "127.0.0.1:1"})
	stream := begin(t, caller(t, n), identity{cluster: testCluster, from: 1, to: 2, lane: peerpb.Lane_LANE_SMALL, layout: testLayout}.metadata())
	b, err := proto.Marshal(message(pb.MsgReadIndex, 9, 2))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&peerpb.Packet{Group: testGroup, Messages: [][]byte{b}}))
	testwait.Until(t, func() bool { return len(to.all()) == 1 })
	removed, err := proto.Marshal(message(pb.MsgReadIndex, 3, 2))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&peerpb.Packet{Group: testGroup, Messages: [][]byte{removed}}))
	require.ErrorContains(t, endOf(stream.RecvMsg(new(peerpb.MessagesResponse))), "a message from node 3 to node 2")
}
