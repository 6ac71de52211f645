package peer

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

const (
	// protocolVersion is that of everything that nodes say to each other. A node talks to
	// those of the same version alone. Version 2 has partitions in the
	// Hello, and Compare.
	protocolVersion = 2

	helloKey      = "kvd-hello-bin"
	maxHelloBytes = 256
)

// identity is what a node says of itself and of whom it means.
type identity struct {
	cluster, from, to uint64
	lane              peerpb.Lane
	layout            Layout
	store             uint64   // of the data directory of from; 0: it is not told
	first             []uint64 // as SetFirst has them; empty: not known
	incarnation       kv.Incarnation
	whereabouts       whereabouts // of from; zero: they are not told
}

// Layout is how the keys of a store are divided. The records of a cluster name partitions, so
// all its nodes need the same.
type Layout struct {
	Partitions int
	Hash       string // name of the hash of keys
}

func (l Layout) String() string { return fmt.Sprintf("%d partitions by %q", l.Partitions, l.Hash) }

// fits compares the layout of another node with that of this one.
func (i identity) fits(me uint64, mine Layout) error {
	if i.layout == mine {
		return nil
	}
	return fmt.Errorf("the store of node %d has %s, that of node %d has %s: make the one that differs again, by kvd cluster init with the same --partitions", i.from, i.layout, me, mine)
}

// began compares the beginning of the history of another node with that of this one. Nodes of two
// histories must not exchange entries or votes, and neither can tell whether the other one was removed.
func (i identity) began(me uint64, mine []uint64) error {
	if len(i.first) == 0 || len(mine) == 0 || slices.Equal(i.first, mine) {
		return nil
	}
	return fmt.Errorf("the cluster of node %d began with the nodes %v, that of node %d with the nodes %v: make the one that differs again, in a new directory, "+
		"by kvd cluster init with the same --members, or by kvd cluster join", i.from, i.first, me, mine)
}

// sameIncarnation compares the incarnation of the cluster of another node with that of this one.
func (i identity) sameIncarnation(me uint64, mine kv.Incarnation) error {
	if i.incarnation == mine {
		return nil
	}
	return fmt.Errorf("the cluster of node %d is of incarnation %s, that of node %d of incarnation %s: one of them was recovered from a lost majority without the other, and they have nothing in common since; "+
		"keep one, stop the nodes of the other, and make them new nodes, with empty directories (kvd cluster join)", i.from, i.incarnation, me, mine)
}

// noLane is the lane of calls that are no stream of messages.
const noLane = peerpb.Lane_LANE_UNSPECIFIED

// calls returns what this node says in a call of another one.
func (n *Network) calls(to uint64, lane peerpb.Lane) identity {
	o := &n.options
	me := identity{cluster: o.Cluster, from: o.Node, to: to, lane: lane, layout: o.Layout, store: o.Store, first: n.first, incarnation: *n.incarnation.Load()}
	if lane != noLane {
		me.whereabouts = *n.self.Load()
	}
	return me
}

// answers returns what this node says to a caller.
func (n *Network) answers(hello identity) identity {
	return identity{cluster: hello.cluster, from: hello.to, to: hello.from, lane: hello.lane, layout: n.options.Layout, store: n.options.Store, first: n.first, incarnation: *n.incarnation.Load()}
}

func (i identity) metadata() metadata.MD {
	hello := &peerpb.Hello{
		Version: protocolVersion, Cluster: i.cluster, From: i.from, To: i.to, Lane: i.lane,
		Partitions: uint32(i.layout.Partitions), Hash: i.layout.Hash, Store: i.store, FirstVoters: i.first,
		Address: i.whereabouts.address, ToldAt: i.whereabouts.at,
	}
	if i.incarnation != (kv.Incarnation{}) {
		hello.Incarnation = i.incarnation.String()
	}
	b, _ := proto.Marshal(hello) // numbers always encode, and so do names
	if len(b) > maxHelloBytes {
		hello.Address, hello.ToldAt = "", 0
		b, _ = proto.Marshal(hello)
	}
	return metadata.Pairs(helloKey, string(b))
}

// readHello decodes the Hello of the other side. Its error says what is wrong with it.
func readHello(md metadata.MD) (identity, error) {
	values := md.Get(helloKey)
	if len(values) != 1 {
		return identity{}, fmt.Errorf("it says %d times which node it is, want once: is it a node of kvd?", len(values))
	}
	h := &peerpb.Hello{}
	if len(values[0]) > maxHelloBytes || proto.Unmarshal([]byte(values[0]), h) != nil {
		return identity{}, fmt.Errorf("it says in %d bytes that cannot be read which node it is", len(values[0]))
	}
	if h.GetVersion() != protocolVersion {
		return identity{}, fmt.Errorf("it speaks version %d, this node version %d: use versions of kvd that fit", h.GetVersion(), protocolVersion)
	}
	incarnation, err := kv.ParseIncarnation(h.GetIncarnation())
	return identity{
		cluster: h.GetCluster(), from: h.GetFrom(), to: h.GetTo(), lane: h.GetLane(),
		layout: Layout{int(h.GetPartitions()), h.GetHash()}, store: h.GetStore(), first: h.GetFirstVoters(), incarnation: incarnation,
		whereabouts: whereabouts{h.GetAddress(), h.GetToldAt()},
	}, err
}

// check compares what another node says with what this one, me, expects. From is checked by
// the caller.
func (i identity) check(me *Options) error {
	switch {
	case i.cluster != me.Cluster:
		return fmt.Errorf("it belongs to cluster %016x, this node to %016x", i.cluster, me.Cluster)
	case i.to != me.Node:
		return fmt.Errorf("it means node %d, this is node %d: an address is wrong", i.to, me.Node)
	case i.from == 0 || i.from == me.Node:
		return fmt.Errorf("it says to be node %d: two nodes have the same id, or an address is wrong", i.from)
	}
	return i.fits(me.Node, me.Layout)
}

// welcome decides whether a call is that of a member, and returns which one: what find says, from or
// meet.
func (n *Network) welcome(ctx context.Context, find func(*identity) (*member, error)) (identity, *member, error) {
	hello, err := n.judged(ctx)
	var m *member
	if err == nil {
		if m, err = find(&hello); err != nil {
			err = n.refuse(ctx, codes.PermissionDenied, err)
		}
	}
	if p, ok := grpcpeer.FromContext(ctx); ok {
		n.door.know(p.Addr.String(), err == nil)
	}
	return hello, m, err
}

// judged decides whether a node that calls is the one that it says to be, and may take part.
func (n *Network) judged(ctx context.Context) (identity, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	hello, err := readHello(md)
	if err == nil {
		err = hello.check(&n.options)
	}
	if err == nil {
		err = hello.began(n.options.Node, n.first)
	}
	if err != nil {
		return hello, n.refuse(ctx, codes.FailedPrecondition, err)
	}
	if err := n.authenticate(ctx, hello); err != nil {
		return hello, n.refuse(ctx, codes.Unauthenticated, err)
	}
	// A node that a recovery has taken out has to learn that. Of one of a later incarnation this node
	// knows nothing.
	mine := *n.incarnation.Load()
	if hello.incarnation.Recoveries <= mine.Recoveries {
		if err := n.expels(ctx, hello); err != nil {
			return hello, err
		}
	}
	if err := hello.sameIncarnation(n.options.Node, mine); err != nil {
		return hello, n.refuse(ctx, codes.FailedPrecondition, err)
	}
	return hello, nil
}

// authenticate compares a Hello with the certificate of the connection. Without TLS, which is
// for loopback alone, the Hello is believed.
func (n *Network) authenticate(ctx context.Context, hello identity) error {
	if n.options.TLS == nil {
		return nil
	}
	node, err := nodeOf(ctx)
	if want := (certificate.Node{Cluster: hello.cluster, ID: hello.from}); err == nil && node != want {
		err = fmt.Errorf("it says to be %s, and its certificate is that of %s", want, node)
	}
	return err
}

// nodeOf returns whose certificate a connection was made with.
func nodeOf(ctx context.Context) (certificate.Node, error) {
	p, _ := grpcpeer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return certificate.Node{}, fmt.Errorf("the connection has no certificate")
	}
	return certificate.NodeOf(info.State.PeerCertificates[0])
}

// refuse counts and reports a call that is refused, and returns what it ends with.
func (n *Network) refuse(ctx context.Context, code codes.Code, why error) error {
	from := "an unknown address"
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	n.refused(from, why)
	return status.Error(code, "node "+strconv.FormatUint(n.options.Node, 10)+" refuses the call: "+why.Error())
}
