package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// anHour is a quota of so many operations in an hour, all of which may come at once.
func anHour(ops int64) auth.Quota {
	return auth.Quota{Requests: auth.Rate{Count: ops, Per: time.Hour}, Burst: time.Hour}
}

// signedClient is a client that may do everything within its quota.
type signedClient struct {
	*fixture
	t         testing.TB
	authority *auth.Authority
	fsys      vfs.FS
	entry     auth.Entry
	token     string
	calls     *callConn
}

func withQuota(t testing.TB, q auth.Quota) *signedClient {
	t.Helper()
	c := &signedClient{t: t, fsys: vfs.NewMem()}
	var id string
	c.token, id, c.entry.Hash = auth.NewToken()
	c.entry.Identity = auth.Identity{Name: "app", TokenID: id, Read: []string{""}, Write: []string{""}}
	c.write(q)
	var err error
	c.authority, err = auth.Open(c.fsys, "tokens", func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	c.fixture = startWith(t, smallLimits, service.Options{Auth: c.authority})
	return c
}

func (c *signedClient) write(q auth.Quota) {
	c.entry.Quota = q
	text, err := auth.Encode([]auth.Entry{c.entry})
	require.NoError(c.t, err)
	require.NoError(c.t, vfs.WriteAtomic(c.fsys, "tokens", text))
}

// limit changes the quota while the server runs.
func (c *signedClient) limit(q auth.Quota) {
	c.write(q)
	c.authority.Reload()
}

func (c *signedClient) ctx() context.Context { return signedIn(testContext(c.t), c.token) }

func (c *signedClient) usage() auth.UsageCounts {
	all := c.Stats().Quotas
	require.Len(c.t, all, 1)
	assert.Equal(c.t, "app", all[0].Name)
	return all[0].UsageCounts
}

// frames returns a connection for calls in frames.
func (c *signedClient) frames() *callConn {
	if c.calls == nil {
		conn, err := c.rawOf(c.token, frame.VersionCalls)
		require.NoError(c.t, err)
		c.t.Cleanup(func() { _ = conn.Close() })
		c.calls = &callConn{rawConn: conn, t: c.t}
	}
	return c.calls
}

// send sends a frame of three operations by a carrier and returns the first error.
func (c *signedClient) send(carrier carrier, oneVersion bool) error {
	op := frame.Op{Kind: frame.Get, Key: []byte("k")}
	if err := carrier.send(framed(frame.ReadFrame, frame.Header{ID: 1, OneVersion: oneVersion}, op, op, op)); err != nil {
		return err
	}
	var first error
	for got := 0; got < 3; {
		var r frame.Response
		if err := carrier.receive(&r); err != nil {
			return err
		}
		for i := range r.Results {
			if result := &r.Results[i]; result.Code != 0 && result.Code != int32(codes.NotFound) && first == nil {
				first = status.Error(codes.Code(result.Code), result.Message)
				assert.Positive(c.t, result.RetryAfterMillis)
			}
			got++
		}
	}
	return first
}

// costs are calls by all ways, and how many operations each is.
func (c *signedClient) costs() map[string]struct {
	ops  uint64
	call func() error
} {
	type cost = struct {
		ops  uint64
		call func() error
	}
	all := map[string]cost{}
	unary := func(way string, conn grpc.ClientConnInterface, ctx context.Context) {
		kv, txn := kvdpb.NewKVServiceClient(conn), kvdpb.NewTxnServiceClient(conn)
		two := []*kvdpb.Mutation{mutatePut("a"), mutateDelete("b")}
		add := func(name string, ops uint64, call func() error) { all[way+" "+name] = cost{ops, call} }
		add("Write", 2, func() error { _, err := kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: two}); return err })
		add("Commit", 5, func() error {
			_, err := txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, ReadKeys: bytesOf("a"), ExpiringKeys: bytesOf("b"), ReadRanges: []*kvdpb.Range{{}}, Mutations: two})
			return err
		})
		add("Execute", 4, func() error {
			_, err := txn.Execute(ctx, &kvdpb.ExecuteRequest{
				Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: []byte("a"), Precondition: mustExist}},
				ThenMutations: two, ElseMutations: two[:1],
			})
			return err
		})
		add("BeginSnapshot", 1, func() error { _, err := txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{}); return err })
		add("KeepSnapshot", 1, func() error {
			_, err := txn.KeepSnapshot(ctx, &kvdpb.KeepSnapshotRequest{SnapshotId: 1 << 60})
			return err
		})
		add("ReleaseSnapshot", 1, func() error {
			_, err := txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: 1 << 60})
			return err
		})
		if way != "gRPC" {
			return
		}
		add("Get", 1, func() error { _, err := kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")}); return err })
		add("BatchGet", 3, func() error {
			_, err := kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: bytesOf("a", "b", "c")})
			return err
		})
		add("Put", 1, func() error {
			_, err := kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
			return err
		})
		add("Delete", 1, func() error { _, err := kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte("none")}); return err })
		add("DeleteRange", 1, func() error {
			_, err := kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: rangeAt(place{"x", "y"})})
			return err
		})
		add("Write each", 2, func() error { _, err := kv.Write(ctx, &kvdpb.WriteRequest{Mutations: two}); return err })
		add("Scan", 1, func() error { return drain(kv.Scan(ctx, &kvdpb.ScanRequest{})) })
	}
	unary("gRPC", c.conn, c.ctx())
	unary("frame", c.frames(), context.Background())
	stream, err := c.kv.Pipeline(c.ctx())
	require.NoError(c.t, err)
	for name, carrier := range map[string]carrier{"raw": c.frames(), "stream": messages{stream}} {
		all[name+" gets"] = cost{3, func() error { return c.send(carrier, false) }}
		all[name+" gets at one version"] = cost{3, func() error { return c.send(carrier, true) }}
	}
	return all
}

// Each operation counts, however it comes. Once the quota is used up all are refused, with the
// reason, the figure and the time.
func TestEveryOperationCountsForTheQuota(t *testing.T) {
	c := withQuota(t, anHour(10_000))
	costs := c.costs()
	require.Len(t, costs, 2*6+7+4)
	for name, cost := range costs {
		before := c.usage()
		err := cost.call()
		code := status.Code(err)
		require.True(t, code == codes.OK || code == codes.NotFound || code == codes.Aborted || code == codes.OutOfRange, "%s: %v", name, err)
		after := c.usage()
		assert.Equal(t, cost.ops, after.Requests-before.Requests, name)
		assert.Greater(t, after.Bytes, before.Bytes, name)
	}

	c.limit(anHour(1))
	_, err := c.kv.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("none")})
	require.Equal(t, codes.NotFound, status.Code(err))
	refused := c.usage().Refused[auth.Requests]
	for name, cost := range costs {
		err := cost.call()
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%s: %v", name, err)
		assert.Contains(t, err.Error(), `"app" is over its quota: requests 1/h (kvd token limit --max-requests); nothing was done, try again in `, name)
		refused += cost.ops
	}
	assert.Equal(t, refused, c.usage().Refused[auth.Requests])
	_, err = c.kv.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")})
	info, retryAfter := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "quota_requests", info.Metadata["cause"])
	assert.InDelta(t, time.Hour, retryAfter, float64(time.Hour/2))
	assert.Positive(t, c.Stats().Shed["quota"])

	// Without a quota nothing is counted, and nothing refused.
	c.limit(auth.Quota{})
	for name, cost := range costs {
		code := status.Code(cost.call())
		assert.NotEqual(t, codes.ResourceExhausted, code, name)
	}
	assert.Empty(t, c.Stats().Quotas)
}

// A request that is refused for what it has, before it is decoded, counts as one operation.
func TestARequestWithTooManyElementsCountsForTheQuota(t *testing.T) {
	c := withQuota(t, anHour(1))
	many := &kvdpb.BatchGetRequest{Keys: make([][]byte, smallLimits.BatchOps+1)}
	_, err := c.kv.BatchGet(c.ctx(), many)
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
	_, err = c.kv.BatchGet(c.ctx(), many)
	requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
}

// A frame with more operations than are left has those done that come first.
func TestTheOperationsOfAFrameAreRefusedOneByOne(t *testing.T) {
	c := withQuota(t, anHour(2))
	conn := c.frames()
	require.NoError(t, conn.send(reads(1, "a", "b", "c", "d")))
	byCode := map[codes.Code]int{}
	for got := 0; got < 4; {
		var r frame.Response
		require.NoError(t, conn.receive(&r))
		for i := range r.Results {
			byCode[codes.Code(r.Results[i].Code)]++
			got++
		}
	}
	assert.Equal(t, map[codes.Code]int{codes.NotFound: 2, codes.ResourceExhausted: 2}, byCode)
	assert.EqualValues(t, 2, c.usage().Refused[auth.Requests])
}

// ofBytes is a quota of so many bytes in an hour, all of which may come at once.
func ofBytes(n int64) auth.Quota {
	return auth.Quota{Bytes: auth.Rate{Count: n, Per: time.Hour}, Burst: time.Hour}
}

// refill makes the buckets full.
func (c *signedClient) refill(q auth.Quota) {
	c.limit(auth.Quota{Snapshots: 1})
	c.limit(q)
}

// replacing puts a value and returns the value before.
func replacing(key, value string) frame.Op {
	return frame.Op{Kind: frame.Put, Key: []byte(key), Value: []byte(value), ReturnPrevious: true}
}

var sixty = strings.Repeat("v", 60)

// byCode sends a frame and counts its results by their code.
func (c *signedClient) byCode(f []byte, results int) map[codes.Code]int {
	c.t.Helper()
	conn, all := c.frames(), map[codes.Code]int{}
	require.NoError(c.t, conn.send(f))
	for got := 0; got < results; {
		var r frame.Response
		require.NoError(c.t, conn.receive(&r))
		for i := range r.Results {
			all[codes.Code(r.Results[i].Code)]++
			got++
		}
	}
	return all
}

func (c *signedClient) putSixty(keys ...string) {
	for _, key := range keys {
		_, err := c.kv.Put(c.ctx(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: []byte(sixty)}})
		require.NoError(c.t, err)
	}
}

// What an answer has is paid for by what follows.
func TestTheBytesOfAnswersCountForTheQuota(t *testing.T) {
	c := withQuota(t, auth.Quota{Snapshots: 1})
	c.putSixty("k")
	sent := func(f []byte) error {
		require.NoError(t, c.frames().send(f))
		return resultOf(c.frames(), 0)
	}
	for name, read := range map[string]func() error{
		"gRPC":     func() error { _, err := c.kv.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")}); return err },
		"BatchGet": func() error { _, err := c.kv.BatchGet(c.ctx(), &kvdpb.BatchGetRequest{Keys: bytesOf("k")}); return err },
		"scan":     func() error { return drain(c.kv.Scan(c.ctx(), &kvdpb.ScanRequest{})) },
		"frame":    func() error { return sent(reads(1, "k")) },
		"previous": func() error { return sent(framed(frame.WriteFrame, frame.Header{ID: 1}, replacing("k", sixty))) },
		"previous by gRPC": func() error {
			_, err := c.kv.Put(c.ctx(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: []byte(sixty)}, ReturnPrevious: true})
			return err
		},
	} {
		c.refill(ofBytes(50))
		before := c.usage().Bytes
		require.NoError(t, read(), name)
		testwait.Until(t, func() bool { return c.usage().Bytes >= before+60 })
		err := read()
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%s: %v", name, err)
		assert.Contains(t, err.Error(), "bytes 50B/h (kvd token limit --max-bytes)")
	}
}

// Operations of one frame are answered until bytes are owed, and those that are answered at one
// version all or none. A write whose answer would have the value before is not done then.
func TestNothingIsReadWhileBytesAreOwed(t *testing.T) {
	c := withQuota(t, auth.Quota{Snapshots: 1})
	c.putSixty("k", "l", "m", "n")
	c.refill(ofBytes(100))
	assert.Equal(t, map[codes.Code]int{codes.OK: 2, codes.ResourceExhausted: 2}, c.byCode(reads(1, "k", "l", "m", "n"), 4))
	assert.EqualValues(t, 2, c.usage().Refused[auth.Bytes])

	together := framed(frame.ReadFrame, frame.Header{ID: 1, OneVersion: true}, frame.Op{Kind: frame.Get, Key: []byte("k")}, frame.Op{Kind: frame.Get, Key: []byte("none")})
	c.refill(ofBytes(50))
	assert.Equal(t, map[codes.Code]int{codes.OK: 1, codes.NotFound: 1}, c.byCode(together, 2), "more than a full bucket")
	assert.Equal(t, map[codes.Code]int{codes.ResourceExhausted: 2}, c.byCode(together, 2))

	c.refill(ofBytes(100))
	writes := framed(frame.WriteFrame, frame.Header{ID: 1}, replacing("k", "new"), replacing("l", "new"), replacing("m", "new"))
	assert.Equal(t, map[codes.Code]int{codes.OK: 2, codes.ResourceExhausted: 1}, c.byCode(writes, 3))
	c.limit(auth.Quota{})
	done := 0
	for _, key := range []string{"k", "l", "m"} {
		r, err := c.kv.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte(key)})
		require.NoError(t, err)
		if string(r.Item.Value) == "new" {
			done++
		}
	}
	assert.Equal(t, 2, done, "what is refused was not done")
}

// The pages of a scan wait for the quota, so that the scan goes on.
func TestAScanIsPacedByTheQuota(t *testing.T) {
	c := withQuota(t, auth.Quota{Requests: auth.Rate{Count: 500, Per: time.Second}})
	for i := range 8 {
		_, err := c.kv.Put(c.ctx(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")}})
		require.NoError(t, err)
	}
	c.limit(auth.Quota{Requests: auth.Rate{Count: 500, Per: time.Second}, Burst: time.Millisecond})
	before := c.usage().Requests
	require.NoError(t, drain(c.kv.Scan(c.ctx(), &kvdpb.ScanRequest{ChunkBytes: 1})))
	assert.EqualValues(t, 8, c.usage().Requests-before, "pages of one item, from a bucket of one")
	assert.Zero(t, c.usage().Refused[auth.Requests])

	// One that would wait for longer than a deadline is refused.
	c.limit(anHour(1))
	err := drain(c.kv.Scan(c.ctx(), &kvdpb.ScanRequest{ChunkBytes: 1}))
	requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
}

// Snapshots count until they are released, expire, or their connection ends.
func TestSnapshotsCountForTheQuota(t *testing.T) {
	c := withQuota(t, auth.Quota{Snapshots: 2})
	begin := func(millis uint32) (uint64, error) {
		r, err := c.txn.BeginSnapshot(c.ctx(), &kvdpb.BeginSnapshotRequest{LeaseMs: millis})
		return r.GetSnapshotId(), err
	}
	first, err := begin(60_000)
	require.NoError(t, err)
	_, err = kvdpb.NewTxnServiceClient(c.frames()).BeginSnapshot(context.Background(), &kvdpb.BeginSnapshotRequest{LeaseMs: 60_000})
	require.NoError(t, err)
	_, err = begin(1)
	info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "quota_snapshots", info.Metadata["cause"])
	assert.Contains(t, err.Error(), "snapshots 2")
	assert.Equal(t, 2, c.usage().Snapshots)
	assert.Equal(t, 2, c.store.SnapshotCount(), "what is refused was not begun")

	_, err = c.txn.ReleaseSnapshot(c.ctx(), &kvdpb.ReleaseSnapshotRequest{SnapshotId: first})
	require.NoError(t, err)
	_, err = begin(1)
	require.NoError(t, err)
	testwait.Until(t, func() bool { // it expires
		first, err = begin(60_000)
		return err == nil
	})
	require.NoError(t, c.calls.Close())
	testwait.Until(t, func() bool { // that of the connection that ended goes
		_, err = begin(60_000)
		return err == nil
	})
	_, err = begin(60_000)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// Connections count while they are open, by whatever protocol, and once for each identity.
func TestConnectionsCountForTheQuota(t *testing.T) {
	c := withQuota(t, auth.Quota{Connections: 2})
	get := func() error {
		_, err := c.kv.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	}
	require.NoError(t, get())
	require.NoError(t, get())
	raw := c.frames()
	require.NoError(t, c.send(raw, false))
	assert.Equal(t, 2, c.usage().Connections)
	refused, err := c.rawOf(c.token, frame.VersionSignIn)
	require.NoError(t, err)
	var r frame.Response
	require.NoError(t, refused.receive(&r))
	require.True(t, r.Refused)
	assert.EqualValues(t, codes.ResourceExhausted, r.Results[0].Code)
	assert.Contains(t, r.Results[0].Message, "connections 2 (kvd token limit --max-connections)")
	require.Error(t, refused.receive(&r), "it ends")
	require.NoError(t, refused.Close())
	other := kvdpb.NewKVServiceClient(c.dial(t))
	_, err = other.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")})
	info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "quota_connections", info.Metadata["cause"])
	assert.EqualValues(t, 2, c.usage().Refused[auth.Connections])

	require.NoError(t, raw.Close())
	testwait.Until(t, func() bool {
		_, err = other.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")})
		return status.Code(err) == codes.NotFound
	})
	assert.Equal(t, 2, c.usage().Connections)

	// Connections that were open before there was a quota count from their next call on.
	c.limit(auth.Quota{})
	require.NoError(t, get())
	c.limit(auth.Quota{Connections: 1})
	require.NoError(t, get())
	_, err = other.Get(c.ctx(), &kvdpb.GetRequest{Key: []byte("k")})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}
