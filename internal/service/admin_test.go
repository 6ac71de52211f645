package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// everything makes a server keep every request in the slow log.
var everything = service.Options{SlowTime: 1, SlowEntries: 1000}

func (f *fixture) slowRequests(t *testing.T, limit uint32) *kvdpb.ListSlowRequestsResponse {
	t.Helper()
	r, err := kvdpb.NewAdminServiceClient(f.conn).ListSlowRequests(testContext(t), &kvdpb.ListSlowRequestsRequest{Limit: limit})
	require.NoError(t, err)
	return r
}

const secret = "a value that must not be seen"

// Every way to the store is in the slow log, with what it asked for, and no value.
func TestSlowRequestsSayWhatTheyAskedFor(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, everything)
	ctx := testContext(t)
	key := []byte("k12")
	item := &kvdpb.Item{Key: key, Value: []byte(secret)}
	asks := &kvdpb.RequestOptions{WantTimings: true}
	mutations := []*kvdpb.Mutation{
		{Op: &kvdpb.Mutation_Put{Put: item}, Precondition: &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: []byte(secret)}}},
		{Op: &kvdpb.Mutation_Delete{Delete: []byte("other")}},
		removeRange("a", "bc"),
	}
	const value = len(secret)
	for _, test := range []struct {
		method     string
		ops, bytes int
		call       func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error)
	}{
		{"Put", 1, 3 + value, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.Put(ctx, &kvdpb.PutRequest{Item: item, Options: asks})
		}},
		{"Get", 1, 3, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.Get(ctx, &kvdpb.GetRequest{Key: key, Options: asks})
		}},
		{"BatchGet", 2, 8, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: bytesOf("k12", "other"), Options: asks})
		}},
		{"Write", 3, 3 + value + 5 + 3, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: mutations, Atomic: true, Options: asks})
		}},
		{"Write", 2, 3 + value + 5, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: mutations[:2], Options: asks})
		}},
		{"DeleteRange", 1, 3 + 1, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: key, End: []byte("l")}, Options: asks})
		}},
		{"Commit", 4, 3 + 1 + 3 + 2, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.txn.Commit(ctx, &kvdpb.CommitRequest{
				ReadVersion: 100, ReadKeys: bytesOf("x"), ReadRanges: []*kvdpb.Range{{Start: []byte("y"), End: []byte("zz")}},
				Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Delete{Delete: key}}, {Op: &kvdpb.Mutation_Delete{Delete: []byte("zz")}}}, Options: asks,
			})
		}},
		{"Execute", 2, 3 + 3 + value, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.txn.Execute(ctx, &kvdpb.ExecuteRequest{
				Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: key, Precondition: mustNotExist}},
				ThenMutations: []*kvdpb.Mutation{put("k12", secret)}, Options: asks,
			})
		}},
		{"Delete", 1, 3, func() (interface{ GetMeta() *kvdpb.ResponseMeta }, error) {
			return f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: key, Options: asks})
		}},
	} {
		before := f.slowRequests(t, 1).Total
		begun := time.Now()
		answer, err := test.call()
		elapsed := time.Since(begun)
		require.NoError(t, err, test.method)
		said := answer.GetMeta().GetTimings()
		require.NotNil(t, said, test.method)
		assert.LessOrEqual(t, sumOf(said), elapsed, test.method)

		log := f.slowRequests(t, 1)
		require.Len(t, log.Requests, 1)
		assert.Equal(t, before+1, log.Total)
		r := log.Requests[0]
		assert.Equal(t, test.method, r.Method)
		assert.Equal(t, log.Total, r.Id)
		assert.EqualValues(t, test.ops, r.Ops, test.method)
		assert.EqualValues(t, test.bytes, r.RequestBytes, test.method)
		assert.Equal(t, "k12", string(r.KeyPrefix), test.method)
		assert.EqualValues(t, 3, r.KeyBytes)
		assert.Zero(t, r.Code)
		assert.Equal(t, "bufconn", r.Peer)
		assert.WithinDuration(t, begun, time.UnixMicro(r.TimeUs), elapsed+time.Millisecond)
		assert.EqualValues(t, r.TotalNs, sumOf(r.Timings), "every moment is in a stage")
		assert.GreaterOrEqual(t, sumOf(r.Timings), sumOf(said))
	}

	c := f.raw(t)
	c.exchange(t, framed(frame.WriteFrame, frame.Header{ID: 1},
		frame.Op{Kind: frame.Put, Key: []byte("k1"), Value: []byte(secret)}, frame.Op{Kind: frame.Delete, Key: []byte("k23")}))
	f.requireNewest(t, "Pipeline.Put")
	c.exchange(t, reads(2, "k123"))
	f.requireNewest(t, "Pipeline.Get")
	log := f.slowRequests(t, 2)
	for i, want := range []*kvdpb.SlowRequest{
		{Method: "Pipeline.Get", Ops: 1, KeyPrefix: []byte("k123"), KeyBytes: 4, RequestBytes: 4},
		{Method: "Pipeline.Put", Ops: 2, KeyPrefix: []byte("k1"), KeyBytes: 2, RequestBytes: uint64(5 + value)},
	} {
		got := proto.CloneOf(log.Requests[i])
		assert.Regexp(t, `^127\.0\.0\.1:\d+$`, got.Peer)
		assert.EqualValues(t, got.TotalNs, sumOf(got.Timings))
		got.Id, got.TimeUs, got.TotalNs, got.Timings, got.Peer = 0, 0, 0, nil, ""
		assert.True(t, proto.Equal(want, got), "%v", got)
	}

	all := f.slowRequests(t, 0)
	assert.Len(t, all.Requests, int(all.Total))
	assert.EqualValues(t, 1, all.ThresholdNs)
	assert.Equal(t, all.Total, f.Stats().Slow)
	assert.NotContains(t, prototext.Format(all), secret[:8])

	_, err := kvdpb.NewAdminServiceClient(f.conn).ClearSlowRequests(ctx, &kvdpb.ClearSlowRequestsRequest{})
	require.NoError(t, err)
	cleared := f.slowRequests(t, 0)
	assert.Empty(t, cleared.Requests)
	assert.Equal(t, all.Total, cleared.Total)
}

// requireNewest waits until a request is in the log: a frame is logged after its answer.
func (f *fixture) requireNewest(t *testing.T, method string) {
	t.Helper()
	testwait.Until(t, func() bool { return f.slowRequests(t, 1).Requests[0].Method == method })
}

func sumOf(m *kvdpb.Timings) time.Duration {
	return time.Duration(m.GateNs + m.InboxNs + m.BatchNs + m.EngineNs + m.LogWriteNs + m.SyncNs + m.ReplyNs)
}

// What failed, or never came to the store.
func TestSlowRequestsThatFailed(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(context.Context, []*kv.Lookup) error { return kv.ErrReadOnly }
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		if string(writes[0].Op.Key) == "panic" {
			panic("at the disco")
		}
		return errors.New(secret)
	}
	f := start(t, store, func() *service.Server { return service.New(store, everything, protocols...) })
	ctx := testContext(t)
	_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k"), Options: &kvdpb.RequestOptions{WantTimings: true}})
	require.Error(t, err)
	assert.EqualValues(t, codes.Unavailable, f.slowRequests(t, 1).Requests[0].Code)
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
	require.Error(t, err)
	assert.EqualValues(t, codes.Internal, f.slowRequests(t, 1).Requests[0].Code)
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("panic")}})
	require.Error(t, err)
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(strings.Repeat("k", 5000))}})
	require.Error(t, err)
	_, err = f.txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, f.slowRequests(t, 0).Total, "the others did not come back from the store")

	c := f.raw(t)
	c.exchange(t, write(1, "panic", "v"))
	testwait.Until(t, func() bool { return f.slowRequests(t, 0).Total == 3 })
	assert.EqualValues(t, codes.Internal, f.slowRequests(t, 1).Requests[0].Code)
}

func TestWithoutASlowLog(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.put(t, "k", "v")
	log := f.slowRequests(t, 0)
	assert.Zero(t, log.Total)
	assert.Zero(t, log.ThresholdNs)
	assert.Empty(t, log.Requests)
	r, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
	require.NoError(t, err)
	assert.Nil(t, r.Meta.Timings, "the request did not ask")
	r2, err := f.kv.BatchGet(testContext(t), &kvdpb.BatchGetRequest{Options: &kvdpb.RequestOptions{WantTimings: true}})
	require.NoError(t, err)
	assert.NotNil(t, r2.Meta.Timings, "of no keys too")
}
