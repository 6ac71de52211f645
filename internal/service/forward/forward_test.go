package forward_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/forward"
	"github.com/kvd-db/kvd/internal/service/grpcapi"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server of a cluster of two, with a plain gRPC client of it. It forwards to the other
// one.
type node struct {
	*service.Server
	id      uint64
	store   *servicetest.Store
	network *peer.Network
	leads   atomic.Bool
	hops    atomic.Int64 // writes that it has forwarded
	refused func() error // by the store, if the node does not lead
	kv      kvdpb.KVServiceClient
	txn     kvdpb.TxnServiceClient
}

// Deliver implements peer.Receiver.
func (n *node) Deliver(*pb.Message) bool { return false }

func (n *node) Gone(uint64) {}

// Forward implements service.Forwarder.
func (n *node) Forward(ctx context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	n.hops.Add(1)
	outcome, answer, err := n.network.Forward(ctx, 3-n.id, forward.HeadOf(w), w.Message)
	switch {
	case errors.Is(err, peer.ErrUnreachable):
		return nil, &kv.NotLeaderError{Leader: 3 - n.id, Unreachable: true}
	case err != nil:
		return nil, err
	}
	return forward.AnswerOf(outcome, answer), nil
}

// pair starts two nodes, of which the second leads. change changes the options of both.
func pair(t *testing.T, change func(*service.Options)) (follower, leader *node) {
	t.Helper()
	var nodes [2]*node
	for i := range nodes {
		n := &node{id: uint64(i + 1), store: servicetest.New(kv.DefaultLimits)}
		n.refused = func() error { return &kv.NotLeaderError{Leader: 3 - n.id, Address: "db2:7070"} }
		refuse := func() error {
			if n.leads.Load() {
				return nil
			}
			return n.refused()
		}
		n.store.OnWrite = func(context.Context, []*kv.Write) error { return refuse() }
		n.store.OnApply = func(context.Context, *kv.WriteBatch) error { return refuse() }
		n.start(t, change)
		nodes[i] = n
	}
	addresses := map[uint64]string{1: nodes[0].network.Addr(), 2: nodes[1].network.Addr()}
	for _, n := range nodes {
		require.NoError(t, n.network.SetMembers(addresses))
	}
	nodes[1].leads.Store(true)
	return nodes[0], nodes[1]
}

func (n *node) start(t *testing.T, change func(*service.Options)) {
	var err error
	n.network, err = peer.New(peer.Options{Cluster: 1, Node: n.id, Listen: "127.0.0.1:0", Layout: peer.Layout{Partitions: 1, Hash: "h"}})
	require.NoError(t, err)
	n.network.Start(n)
	t.Cleanup(n.network.Close)
	o := service.Options{Forward: n}
	if change != nil {
		change(&o)
	}
	n.Server = service.New(n.store, o, grpcapi.New)
	r := forward.NewReceiver(n.Server)
	n.network.ServeForwards(func(ctx context.Context, f *peer.Forwarded) error { return r.Perform(ctx, f.From, f.Head, f) })
	listener := bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- n.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	n.kv, n.txn = kvdpb.NewKVServiceClient(conn), kvdpb.NewTxnServiceClient(conn)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		defer cancel()
		assert.NoError(t, n.Shutdown(ctx))
		assert.NoError(t, <-served)
		// A forwarded write gives back what it holds after the other node has its answer.
		testwait.Until(t, func() bool { return n.Stats().Bytes == 0 && n.Stats().Streams == 0 }, "no write holds memory or a place any more")
	})
}

func item(key, value string) *kvdpb.Item { return &kvdpb.Item{Key: []byte(key), Value: []byte(value)} }

func mutation(key, value string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: item(key, value)}}
}

// has returns what the store of a node has under a key; false: nothing.
func (n *node) has(t *testing.T, key string) (string, bool) {
	t.Helper()
	l := &kv.Lookup{Key: []byte(key)}
	require.NoError(t, n.store.Lookup(t.Context(), []*kv.Lookup{l}))
	return string(l.Value), l.Found
}

// reasonOf returns the reason of a failed call, with its details.
func reasonOf(t *testing.T, err error) *errdetails.ErrorInfo {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	require.Fail(t, "no reason", "%v", err)
	return nil
}

var absent = &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{MustNotExist: true}}

// A client of a node that does not lead writes by every method, and is answered as by the node that
// does.
func TestWritesAreForwarded(t *testing.T) {
	follower, leader := pair(t, nil)
	ctx := testwait.Context(t)
	leader.store.Advance(time.Hour) // the time to live counts by the clock of the leader
	options := &kvdpb.RequestOptions{ClientId: 7, Sequence: 1, WantTimings: true}
	put, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("a"), Value: []byte("1"), TtlMs: 60_000}, Options: options})
	require.NoError(t, err)
	require.NotNil(t, put.Meta.Timings)
	got, err := leader.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("a")})
	require.NoError(t, err)
	require.Equal(t, "1", string(got.Item.Value))
	require.Equal(t, uint64(60_000), got.Item.TtlMs)

	// The same request id, on the node that leads: it is known.
	again, err := leader.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1"), Options: &kvdpb.RequestOptions{ClientId: 7, Sequence: 1, Retried: true}})
	require.NoError(t, err)
	require.True(t, again.Meta.Deduplicated)
	require.Equal(t, put.Meta.Version, again.Meta.Version)

	large := strings.Repeat("v", 3<<20)
	put, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", large), ReturnPrevious: true})
	require.NoError(t, err)
	require.Equal(t, "1", string(put.Previous.Value))
	put, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "2"), ReturnPrevious: true})
	require.NoError(t, err)
	require.True(t, large == string(put.Previous.Value))

	_, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "x"), Precondition: absent})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	_, direct := leader.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "x"), Precondition: absent})
	require.Equal(t, status.Convert(direct).Message(), status.Convert(err).Message())
	require.True(t, proto.Equal(reasonOf(t, direct), reasonOf(t, err)), "%v, %v", direct, err)

	written, err := follower.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{mutation("b", "3"), mutation("c", "3")}})
	require.NoError(t, err)
	require.NotZero(t, written.Meta.Version)
	each := mutation("c", "4")
	each.Precondition = absent
	written, err = follower.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{each, mutation("d", "4")}})
	require.NoError(t, err)
	require.Equal(t, "CONDITION_FAILED", written.Statuses[0].Reason)
	require.Zero(t, written.Statuses[1].Code)

	snapshot, err := leader.txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{})
	require.NoError(t, err)
	commit := &kvdpb.CommitRequest{ReadVersion: snapshot.Version, Epoch: snapshot.Epoch, ReadKeys: [][]byte{[]byte("d")}, Mutations: []*kvdpb.Mutation{mutation("d", "5")}}
	_, err = follower.txn.Commit(ctx, commit)
	require.NoError(t, err)
	_, err = follower.txn.Commit(ctx, commit)
	require.Equal(t, "CONFLICT", reasonOf(t, err).Reason)
	require.Equal(t, `"d"`, reasonOf(t, err).Metadata["key"])
	executed, err := follower.txn.Execute(ctx, &kvdpb.ExecuteRequest{
		Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: []byte("d"), Precondition: absent}},
		ElseMutations: []*kvdpb.Mutation{mutation("e", "6")},
	})
	require.NoError(t, err)
	require.False(t, executed.Succeeded)
	for key, want := range map[string]string{"a": "2", "b": "3", "c": "3", "d": "5", "e": "6"} {
		value, _ := leader.has(t, key)
		require.Equal(t, want, value, key)
	}
	_, err = follower.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte("a")})
	require.NoError(t, err)
	_, err = follower.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: []byte("b"), End: []byte("e")}})
	require.NoError(t, err)
	require.Equal(t, 1, leader.store.Len(), "e is left")
	require.Zero(t, follower.store.Len())

	counts := map[string]uint64{}
	for _, r := range leader.Stats().Requests {
		counts[r.Method] += r.Count
	}
	require.Equal(t, uint64(4), counts["Forwarded.Put"])
	require.Equal(t, uint64(2), counts["Forwarded.Commit"])
}

// What is not forwarded is answered with the node that leads, and nothing of it was done.
func TestWhatIsNotForwarded(t *testing.T) {
	follower, leader := pair(t, nil)
	ctx := testwait.Context(t)
	put := &kvdpb.PutRequest{Item: item("a", "1")}
	_, err := follower.kv.Put(metadata.AppendToOutgoingContext(ctx, kvdpb.FollowsLeaderHeader, "1"), put)
	require.Equal(t, "NOT_LEADER", reasonOf(t, err).Reason, "its client goes there itself")
	require.ErrorContains(t, err, "write to node 2 at db2:7070")
	conditional := mutation("a", "1")
	conditional.Precondition = absent
	_, err = follower.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, ReadKeys: [][]byte{[]byte("a")}, Mutations: []*kvdpb.Mutation{conditional}})
	require.Equal(t, "NOT_LEADER", reasonOf(t, err).Reason, "its condition is of a version that the other node does not keep")
	stream, err := follower.kv.Pipeline(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{{Tag: 1, Op: &kvdpb.PipelineRequest_Op_Put{Put: put}}}}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "NOT_LEADER", answer.Results[0].Status.Reason, "an operation of a pipeline")
	require.NoError(t, stream.CloseSend())
	require.Zero(t, follower.hops.Load())

	// Of a write that may have been applied, nothing is sent.
	follower.refused = func() error { return errors.Join(kv.ErrUncertain, &kv.NotLeaderError{}) }
	_, err = follower.kv.Put(ctx, put)
	require.Equal(t, "OUTCOME_UNKNOWN", reasonOf(t, err).Reason)
	require.Zero(t, follower.hops.Load())
	follower.refused = func() error { return &kv.NotLeaderError{Leader: 2} }

	// The other node does not lead either, and forwards nothing.
	leader.leads.Store(false)
	_, err = follower.kv.Put(ctx, put)
	require.Equal(t, "NOT_LEADER", reasonOf(t, err).Reason)
	require.Equal(t, int64(1), follower.hops.Load())
	require.Zero(t, leader.hops.Load())

	require.NoError(t, leader.network.SetMembers(nil)) // it takes nothing of this node any more
	_, err = follower.kv.Put(ctx, put)
	require.Equal(t, "NOT_LEADER", reasonOf(t, err).Reason)
	require.ErrorContains(t, err, "which does not answer this one; nothing was done")
	_, found := leader.has(t, "a")
	require.False(t, found)
}

// A write whose way breaks, or whose time runs out, after it was sent has an unknown outcome.
func TestTheOutcomeOfABrokenForwardIsUnknown(t *testing.T) {
	follower, leader := pair(t, nil)
	began, over := make(chan struct{}, 1), make(chan struct{}, 1)
	leader.store.OnWrite = func(ctx context.Context, _ []*kv.Write) error {
		began <- struct{}{}
		<-ctx.Done()
		over <- struct{}{}
		return errors.Join(kv.ErrUncertain, ctx.Err())
	}
	put := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1")})
			done <- err
		}()
		return done
	}
	done := put(testwait.Context(t))
	<-began
	require.NoError(t, follower.network.SetMembers(nil)) // ends the connection
	err := <-done
	require.Equal(t, "OUTCOME_UNKNOWN", reasonOf(t, err).Reason)
	require.Equal(t, codes.Unavailable, status.Code(err))
	<-over

	require.NoError(t, follower.network.SetMembers(map[uint64]string{2: leader.network.Addr()}))
	ctx, cancel := context.WithCancel(testwait.Context(t))
	done = put(ctx)
	<-began
	cancel() // the node that leads learns it
	<-over
	require.Equal(t, codes.Canceled, status.Code(<-done))
}

// While the node that leads shuts down it takes no forwarded write, and ends those that it has.
func TestAShutdownEndsForwardedWrites(t *testing.T) {
	follower, leader := pair(t, nil)
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	leader.store.OnWrite = func(context.Context, []*kv.Write) error {
		began <- struct{}{}
		<-goOn
		return nil
	}
	ctx := testwait.Context(t)
	done := make(chan error, 1)
	go func() {
		_, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1")})
		done <- err
	}()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- leader.Shutdown(ctx) }()
	<-leader.Draining().Done()
	testwait.Until(t, func() bool { // once no listener is open any more
		leave, err := leader.Enter()
		if err == nil {
			leave()
		}
		return err != nil
	})
	_, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("b", "1")})
	require.Equal(t, "SHUTTING_DOWN", reasonOf(t, err).Reason)
	select {
	case <-stopped:
		require.Fail(t, "it did not wait")
	default:
	}
	close(goOn)
	require.NoError(t, <-done)
	require.NoError(t, <-stopped)
}

// authority returns what knows one client, which may read and write keys with the prefix own/.
func authority(t *testing.T) (*auth.Authority, string) {
	token, id, hash := auth.NewToken()
	text, err := auth.Encode([]auth.Entry{{Identity: auth.Identity{Name: "app", TokenID: id, Read: []string{"own/"}, Write: []string{"own/"}}, Hash: hash}})
	require.NoError(t, err)
	fsys := vfs.NewMem()
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
	a, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	return a, token
}

// What a client may not do is refused by the node that it calls, and by the one that leads.
func TestRightsAreJudgedOnBothNodes(t *testing.T) {
	known, token := authority(t)
	var refusals atomic.Int64
	follower, leader := pair(t, func(o *service.Options) {
		o.Auth = known
		o.Audit = func(e audit.Event) {
			if e.Kind == audit.Refused {
				refusals.Add(1)
			}
		}
	})
	ctx := metadata.AppendToOutgoingContext(testwait.Context(t), "authorization", "Bearer "+token)
	_, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("own/a", "1"), Precondition: absent})
	require.NoError(t, err)
	_, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("other", "1")})
	require.Equal(t, "PERMISSION_DENIED", reasonOf(t, err).Reason)
	require.Equal(t, int64(1), follower.hops.Load(), "only the write that is allowed was forwarded")
	_, err = follower.kv.Put(testwait.Context(t), &kvdpb.PutRequest{Item: item("own/a", "1")})
	require.Equal(t, "UNAUTHENTICATED", reasonOf(t, err).Reason)

	// Of independent mutations the allowed ones are done.
	written, err := follower.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{mutation("own/b", "2"), mutation("other", "2")}})
	require.NoError(t, err)
	require.Zero(t, written.Statuses[0].Code)
	require.Equal(t, "PERMISSION_DENIED", written.Statuses[1].Reason)
	_, found := leader.has(t, "other")
	require.False(t, found)
	require.Equal(t, 2, leader.store.Len())

	// A node that forwards what its client may not do, or of a client that it does not know.
	message, err := proto.Marshal(&kvdpb.PutRequest{Item: item("other", "3")})
	require.NoError(t, err)
	before := refusals.Load()
	forwarded := func(client *peerpb.ForwardClient) *peerpb.ForwardFailure {
		outcome, answer, err := follower.network.Forward(testwait.Context(t), 2, &peerpb.ForwardHead{Method: kvdpb.KVService_Put_FullMethodName, Client: client}, message)
		require.NoError(t, err)
		require.Equal(t, outcome.GetFailure() == nil, len(answer) > 0)
		return outcome.GetFailure()
	}
	require.Equal(t, "PERMISSION_DENIED", forwarded(&peerpb.ForwardClient{Name: "app", Write: [][]byte{[]byte("own/")}}).GetReason())
	require.Equal(t, before+1, refusals.Load())
	require.Equal(t, "UNAUTHENTICATED", forwarded(nil).GetReason())
	require.Nil(t, forwarded(&peerpb.ForwardClient{Name: "app", Write: [][]byte{[]byte("o")}}))
}

// What another node sends against the protocol is refused.
func TestForwardedRequestsThatAreMalformed(t *testing.T) {
	follower, leader := pair(t, nil)
	send := func(method string, message []byte) (*peerpb.ForwardOutcome, error) {
		outcome, _, err := follower.network.Forward(testwait.Context(t), 2, &peerpb.ForwardHead{Method: method}, message)
		return outcome, err
	}
	for _, method := range []string{"", kvdpb.KVService_Get_FullMethodName, kvdpb.AdminService_RemoveNode_FullMethodName} {
		_, err := send(method, nil)
		require.ErrorIs(t, err, peer.ErrUnreachable, method)
	}
	outcome, err := send(kvdpb.KVService_Put_FullMethodName, []byte{0xff})
	require.NoError(t, err)
	require.Equal(t, "INVALID_REQUEST", outcome.GetFailure().GetReason())
	outcome, err = send(kvdpb.KVService_Put_FullMethodName, bytes.Repeat([]byte{0}, service.MessageBytes(kv.DefaultLimits)+1))
	require.NoError(t, err)
	require.Equal(t, "TOO_LARGE", outcome.GetFailure().GetReason())
	leader.store.OnWrite = func(context.Context, []*kv.Write) error { panic("a bug") }
	_, err = follower.kv.Put(testwait.Context(t), &kvdpb.PutRequest{Item: item("a", "1")})
	require.Equal(t, "INTERNAL", reasonOf(t, err).Reason)
	require.Equal(t, uint64(1), leader.Stats().Panics)
}

// Without memory or places for requests a forwarded write is refused, and nothing was done.
func TestForwardedWritesAreBounded(t *testing.T) {
	follower, leader := pair(t, nil)
	ctx := testwait.Context(t)
	all := leader.Options().BufferBytes
	require.True(t, leader.Memory().Take(all, 0))
	_, err := follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1")})
	leader.Memory().Give(all)
	require.Equal(t, "OVERLOADED", reasonOf(t, err).Reason)
	require.Equal(t, "bytes", reasonOf(t, err).Metadata["cause"])
	require.Zero(t, leader.store.Len())

	require.True(t, follower.Memory().Take(all-8<<20, 0)) // enough for the request, and not for what was there
	_, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1"), ReturnPrevious: true})
	follower.Memory().Give(all - 8<<20)
	require.Equal(t, "OVERLOADED", reasonOf(t, err).Reason)
	require.Zero(t, leader.store.Len())
	_, err = follower.kv.Put(ctx, &kvdpb.PutRequest{Item: item("a", "1")})
	require.NoError(t, err)
}
