package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

var methods = map[string]frame.Method{
	kvdpb.KVService_Write_FullMethodName:            frame.MethodWrite,
	kvdpb.TxnService_Commit_FullMethodName:          frame.MethodCommit,
	kvdpb.TxnService_Execute_FullMethodName:         frame.MethodExecute,
	kvdpb.TxnService_BeginSnapshot_FullMethodName:   frame.MethodBeginSnapshot,
	kvdpb.TxnService_KeepSnapshot_FullMethodName:    frame.MethodKeepSnapshot,
	kvdpb.TxnService_ReleaseSnapshot_FullMethodName: frame.MethodReleaseSnapshot,
}

// callConn carries calls in frames, for the generated clients. One call at a time.
type callConn struct {
	*rawConn
	t      testing.TB
	lastID uint32
}

// calls opens a connection that carries calls.
func (f *fixture) calls(t testing.TB) *callConn {
	t.Helper()
	conn, err := f.listener.Dial()
	require.NoError(t, err)
	return newCallConn(t, conn, "")
}

func newCallConn(t testing.TB, conn net.Conn, token string) *callConn {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() }) // some are closed earlier
	require.NoError(t, conn.SetDeadline(testwait.Deadline()))
	hello := frame.PreambleOf(frame.VersionCalls)
	_, err := io.WriteString(conn, hello)
	require.NoError(t, err)
	_, err = conn.Write(frame.AppendSignIn(nil, token))
	require.NoError(t, err)
	c := &rawConn{conn, bufio.NewReader(conn)}
	answer := make([]byte, len(hello))
	_, err = io.ReadFull(c.in, answer)
	require.NoError(t, err)
	require.Equal(t, hello, string(answer))
	return &callConn{rawConn: c, t: t}
}

func callOp(t testing.TB, m frame.Method, request proto.Message) frame.Op {
	t.Helper()
	value, err := proto.Marshal(request)
	require.NoError(t, err)
	return frame.Op{Kind: frame.Call, Method: m, Value: value}
}

func (c *callConn) Invoke(_ context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	c.lastID++
	data := framed(frame.CallFrame, frame.Header{ID: c.lastID}, callOp(c.t, methods[method], request.(proto.Message)))
	if err := c.send(data); err != nil {
		return err
	}
	var r frame.Response
	if err := c.receive(&r); err != nil {
		return err
	}
	if r.Refused && len(r.Results) == 1 { // the connection ends
		return resultOfCall(&r.Results[0], answer.(proto.Message))
	}
	if r.ID != c.lastID || len(r.Results) != 1 {
		return fmt.Errorf("%d results for frame %d", len(r.Results), r.ID)
	}
	return resultOfCall(&r.Results[0], answer.(proto.Message))
}

// resultOfCall decodes the answer of a call, or returns its failure as gRPC has it.
func resultOfCall(r *frame.Result, answer proto.Message) error {
	if r.Code == 0 {
		if !r.HasPrevious || r.ItemVersion != 0 {
			return errors.New("an answer that is not one of a call")
		}
		return proto.Unmarshal(r.Value, answer)
	}
	info := &errdetails.ErrorInfo{Reason: r.Reason, Domain: kvdpb.ErrorDomain}
	for _, d := range r.Details {
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[d.Name] = d.Value
	}
	s, err := status.New(codes.Code(r.Code), r.Message).WithDetails(info)
	if err == nil && r.RetryAfterMillis > 0 {
		s, err = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(r.RetryAfterMillis) * time.Millisecond)})
	}
	if err != nil {
		return err
	}
	return s.Err()
}

func (c *callConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("frames have no streams")
}

// A call in a frame means, answers and fails as the same call of gRPC.
func TestCallsInFramesAreThoseOfGRPC(t *testing.T) {
	put := func(key, value string) *kvdpb.Mutation {
		return &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: []byte(key), Value: []byte(value)}}}
	}
	named := func(sequence uint64) *kvdpb.RequestOptions {
		return &kvdpb.RequestOptions{ClientId: 7, Sequence: sequence}
	}
	gone := new(kvdpb.CommitRequest)
	steps := []struct {
		method  string
		request proto.Message
	}{
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("a", "1"), put("b", "2")}, Atomic: true}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("c", "3")}, Atomic: true, Options: named(1)}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("c", "3")}, Atomic: true, Options: named(1)}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Atomic: true}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("", "3")}, Atomic: true}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("123456789", "")}, Atomic: true}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("a", strings.Repeat("x", 60)), put("b", strings.Repeat("x", 60))}, Atomic: true}},
		{kvdpb.TxnService_BeginSnapshot_FullMethodName, &kvdpb.BeginSnapshotRequest{LeaseMs: 5000}},
		{kvdpb.TxnService_KeepSnapshot_FullMethodName, &kvdpb.KeepSnapshotRequest{SnapshotId: 1, LeaseMs: 7000}},
		{kvdpb.TxnService_KeepSnapshot_FullMethodName, &kvdpb.KeepSnapshotRequest{SnapshotId: 99}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 2, ReadKeys: bytesOf("a"), Mutations: []*kvdpb.Mutation{put("a", "2")}}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 2, ReadKeys: bytesOf("a"), Mutations: []*kvdpb.Mutation{put("a", "3")}}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 2, ReadRanges: []*kvdpb.Range{{}}, Mutations: []*kvdpb.Mutation{put("a", "3")}}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 2, Epoch: 12345, ReadKeys: bytesOf("a"), Mutations: []*kvdpb.Mutation{put("a", "3")}}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 1 << 63, Mutations: []*kvdpb.Mutation{put("a", "3")}}},
		{kvdpb.TxnService_Commit_FullMethodName, &kvdpb.CommitRequest{ReadVersion: 3, Mutations: []*kvdpb.Mutation{put("a", "4")}, Options: &kvdpb.RequestOptions{Durability: 77}}},
		{kvdpb.TxnService_Commit_FullMethodName, gone},
		{kvdpb.TxnService_Execute_FullMethodName, &kvdpb.ExecuteRequest{
			Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: []byte("a"), Precondition: valueEquals("2")}},
			ThenMutations: []*kvdpb.Mutation{put("d", "then")}, ElseMutations: []*kvdpb.Mutation{put("d", "else")}, Options: named(9),
		}},
		{kvdpb.TxnService_Execute_FullMethodName, &kvdpb.ExecuteRequest{
			Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: []byte("a"), Precondition: mustNotExist}},
			ElseMutations: []*kvdpb.Mutation{put("d", "else")},
		}},
		{kvdpb.TxnService_Execute_FullMethodName, &kvdpb.ExecuteRequest{Guards: []*kvdpb.ExecuteRequest_Guard{{}}}},
		{kvdpb.KVService_Write_FullMethodName, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{{
			Op: &kvdpb.Mutation_Delete{Delete: []byte("a")}, Precondition: versionEquals(1),
		}}}},
		{kvdpb.TxnService_ReleaseSnapshot_FullMethodName, &kvdpb.ReleaseSnapshotRequest{SnapshotId: 1}},
		{kvdpb.TxnService_KeepSnapshot_FullMethodName, &kvdpb.KeepSnapshotRequest{SnapshotId: 1}},
	}
	byGRPC, byFrames := startWith(t, smallLimits, service.Options{}), startWith(t, smallLimits, service.Options{})
	frames := byFrames.calls(t)
	failures := 0
	for i, step := range steps {
		answers := [2]proto.Message{}
		var errs [2]error
		for j, conn := range []grpc.ClientConnInterface{byGRPC.conn, frames} {
			answers[j] = answerTo(step.request)
			errs[j] = conn.Invoke(testContext(t), step.method, step.request, answers[j])
		}
		if errs[0] != nil {
			failures++
		}
		want, got := status.Convert(errs[0]), status.Convert(errs[1])
		require.Equal(t, want.Code(), got.Code(), "step %d", i)
		require.Equal(t, want.Message(), got.Message(), "step %d", i)
		require.Len(t, got.Details(), len(want.Details()), "step %d", i)
		for j, d := range want.Details() { // encoded they have no order
			require.True(t, proto.Equal(d.(proto.Message), got.Details()[j].(proto.Message)), "step %d:\n%v\n%v", i, d, got.Details()[j])
		}
		require.True(t, proto.Equal(answers[0], answers[1]), "step %d:\n%v\n%v", i, answers[0], answers[1])
	}
	assert.GreaterOrEqual(t, failures, 10)
	assert.EqualValues(t, 1, byFrames.requests("Pipeline.ReleaseSnapshot", codes.OK))
	assert.EqualValues(t, 2, byFrames.requests("Pipeline.Commit", codes.Aborted))
	require.NoError(t, frames.Close())
	byFrames.requireIdle(t)
}

func answerTo(request proto.Message) proto.Message {
	switch request.(type) {
	case *kvdpb.WriteRequest:
		return new(kvdpb.WriteResponse)
	case *kvdpb.CommitRequest:
		return new(kvdpb.CommitResponse)
	case *kvdpb.ExecuteRequest:
		return new(kvdpb.ExecuteResponse)
	case *kvdpb.BeginSnapshotRequest:
		return new(kvdpb.BeginSnapshotResponse)
	case *kvdpb.KeepSnapshotRequest:
		return new(kvdpb.KeepSnapshotResponse)
	}
	return new(kvdpb.ReleaseSnapshotResponse)
}

// A commit that waits holds up neither the other calls of its frame nor later frames.
func TestASlowCallHoldsUpNoOther(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	leave := make(chan struct{})
	store.OnApply = func(ctx context.Context, b *kv.WriteBatch) error {
		if string(b.Ops()[0].Key) == "slow" {
			<-leave
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	c := f.calls(t)
	commit := func(key string) frame.Op {
		return callOp(t, frame.MethodCommit, &kvdpb.CommitRequest{
			Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: []byte(key)}}}},
		})
	}
	skipped := commit("skipped")
	skipped.Skipped = true
	begin := callOp(t, frame.MethodBeginSnapshot, new(kvdpb.BeginSnapshotRequest))
	require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: 1}, commit("slow"), commit("a"), skipped, begin, commit("b"))))
	got := map[uint64]frame.Result{}
	var r frame.Response
	for len(got) < 4 {
		require.NoError(t, c.receive(&r))
		require.EqualValues(t, 1, r.ID)
		for _, one := range r.Results {
			require.Zero(t, one.Code, "%+v", one)
			got[one.Tag] = one
		}
	}
	require.NotContains(t, got, uint64(0))
	require.True(t, got[2].Skipped)
	require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: 2}, commit("c"))))
	require.NoError(t, c.receive(&r))
	require.EqualValues(t, 2, r.ID)
	close(leave)
	require.NoError(t, c.receive(&r))
	require.EqualValues(t, 1, r.ID)
	require.Len(t, r.Results, 1)
	require.EqualValues(t, 0, r.Results[0].Tag)
	require.NoError(t, c.Close())
	f.requireIdle(t)
}

// More calls than are performed at a time are all answered, once.
func TestAFullFrameOfCalls(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	c := f.calls(t)
	var ops []frame.Op
	for i := range frame.MaxOps {
		ops = append(ops, callOp(t, frame.MethodWrite, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{
			{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: fmt.Appendf(nil, "key%d", i)}}},
		}}))
	}
	require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: 1}, ops...)))
	versions := map[uint64]bool{}
	for len(versions) < frame.MaxOps {
		var r frame.Response
		require.NoError(t, c.receive(&r))
		for i := range r.Results {
			var answer kvdpb.WriteResponse
			require.NoError(t, resultOfCall(&r.Results[i], &answer))
			require.Equal(t, answer.Meta.Version, r.Results[i].Version)
			require.False(t, versions[answer.Meta.Version])
			versions[answer.Meta.Version] = true
		}
	}
	assert.EqualValues(t, frame.MaxOps, f.store.Len())
}

// What is no call that the server performs fails by itself or, if the client may not send it,
// ends the connection.
func TestCallsThatAreRefused(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	c := f.calls(t)
	require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: 1},
		frame.Op{Kind: frame.Call, Method: frame.MethodCommit, Value: []byte("\xff")},
		callOp(t, frame.MethodWrite, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Delete{Delete: []byte("k")}}}}),
		callOp(t, frame.MethodReleaseSnapshot, new(kvdpb.ReleaseSnapshotRequest)))))
	var all []frame.Result
	for len(all) < 3 {
		var r frame.Response
		require.NoError(t, c.receive(&r))
		all = append(all, r.Results...)
	}
	for _, r := range all {
		if r.Tag == 2 {
			assert.Zero(t, r.Code)
			continue
		}
		assert.Equal(t, kvdpb.ReasonInvalidRequest, r.Reason)
	}
	data := framed(frame.CallFrame, frame.Header{ID: 1}, callOp(t, frame.MethodReleaseSnapshot, new(kvdpb.ReleaseSnapshotRequest)))
	plain := f.raw(t)
	require.NoError(t, plain.send(data))
	plain.requireEnd(t)
	stream, err := f.kv.Pipeline(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Frame: data}))
	_, err = stream.Recv()
	require.Error(t, err)
}

// Time that has run out, and a panic, fail one call of a frame.
func TestACallOfAFrameFailsAlone(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnApply = func(ctx context.Context, b *kv.WriteBatch) error {
		switch string(b.Ops()[0].Key) {
		case "panics":
			panic("on purpose")
		case "late":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	c := f.calls(t)
	var ops []frame.Op
	for _, key := range []string{"panics", "late", "good"} {
		ops = append(ops, callOp(t, frame.MethodWrite, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{
			{Op: &kvdpb.Mutation_Delete{Delete: []byte(key)}},
		}}))
	}
	ops[1].TimeoutMillis = 1
	require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: 1, TimeoutMillis: 600_000}, ops...)))
	got := map[uint64]string{}
	for len(got) < 3 {
		var r frame.Response
		require.NoError(t, c.receive(&r))
		for _, one := range r.Results {
			got[one.Tag] = one.Reason
		}
	}
	assert.Equal(t, map[uint64]string{0: kvdpb.ReasonInternal, 1: kvdpb.ReasonDeadlineExceeded, 2: ""}, got)
}

// A snapshot that began by a frame belongs to its connection: what a connection that has ended
// held is free for others, and a connection has only its share.
func TestSnapshotsOfFramesBelongToTheirConnection(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: servicetest.MaxSnapshots})
	f.put(t, "k", "v")
	greedy := f.calls(t)
	taken := beginAll(t, kvdpb.NewTxnServiceClient(greedy))
	assert.Len(t, taken, 50)
	honest := f.calls(t)
	assert.Len(t, beginAll(t, kvdpb.NewTxnServiceClient(honest)), 25)
	require.NoError(t, greedy.Close())
	testwait.Until(t, func() bool { return f.Stats().Raw == 1 })
	byGRPC := beginAll(t, f.txn)
	assert.Greater(t, len(byGRPC), 12, "what the first connection held is free")
	_, err := kvdpb.NewTxnServiceClient(honest).KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: byGRPC[0]})
	require.NoError(t, err, "a snapshot may move to another connection of its client")
}

// Calls of several connections at once, each of which sees what was acknowledged before.
func TestCallsOfManyConnections(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.put(t, "a store that is not empty", "")
	var all sync.WaitGroup
	for i := range 8 {
		c := f.calls(t)
		all.Go(func() {
			txn, key := kvdpb.NewTxnServiceClient(c), fmt.Appendf(nil, "k%d", i)
			for range 50 {
				s, err := txn.BeginSnapshot(testContext(t), new(kvdpb.BeginSnapshotRequest))
				if !assert.NoError(t, err) {
					return
				}
				done, err := txn.Commit(testContext(t), &kvdpb.CommitRequest{
					ReadVersion: s.Version, Epoch: s.Epoch, ReadKeys: [][]byte{key},
					Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: key}}}},
				})
				if !assert.NoError(t, err) || !assert.Greater(t, done.Meta.Version, s.Version) {
					return
				}
				_, err = txn.ReleaseSnapshot(testContext(t), &kvdpb.ReleaseSnapshotRequest{SnapshotId: s.SnapshotId})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.Zero(t, f.store.SnapshotCount())
}

// Calls in frames have their connection's share of the calls that are being served.
func TestCallsInFramesTakeAShare(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered, leave := make(chan struct{}), make(chan struct{})
	store.OnSnapshot = func(context.Context) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{Streams: 4}, protocols...) })
	c := f.calls(t)
	ask := func(id uint32) {
		require.NoError(t, c.send(framed(frame.CallFrame, frame.Header{ID: id}, callOp(t, frame.MethodBeginSnapshot, new(kvdpb.BeginSnapshotRequest)))))
	}
	for id := range uint32(2) {
		ask(id)
		<-entered
	}
	assert.EqualValues(t, 2, f.Stats().Streams)
	ask(2) // as many are free as the connection has
	var r frame.Response
	require.NoError(t, c.receive(&r))
	require.EqualValues(t, 2, r.ID)
	requireFailure(t, resultOfCall(&r.Results[0], new(kvdpb.BeginSnapshotResponse)), codes.ResourceExhausted, "OVERLOADED")
	close(leave)
	for range 2 {
		require.NoError(t, c.receive(&r))
		require.NoError(t, resultOfCall(&r.Results[0], new(kvdpb.BeginSnapshotResponse)))
	}
	testwait.Until(t, func() bool { return f.Stats().Streams == 0 })
}
