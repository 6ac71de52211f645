package service_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	"github.com/kvd-db/kvd/internal/service/grpcapi"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// protocols are what the server speaks.
var protocols = []service.NewProtocol{frameapi.New, grpcapi.New}

// smallLimits make the limits cheap to hit.
var smallLimits = kv.Limits{KeyBytes: 8, ValueBytes: 64, BatchOps: 4, BatchBytes: 100}

// fixture is a server over connections in memory and a plain gRPC client of it,
// which knows only the generated code.
type fixture struct {
	*service.Server
	store    *servicetest.Store
	listener *bufconn.Listener
	conn     *grpc.ClientConn
	kv       kvdpb.KVServiceClient
	txn      kvdpb.TxnServiceClient
}

// start runs a server until the test ends.
func start(t testing.TB, store *servicetest.Store, make func() *service.Server) *fixture {
	t.Helper()
	f := &fixture{Server: make(), store: store, listener: bufconn.Listen(64 << 10)}
	served := serveOn(f.Server, f.listener)
	t.Cleanup(func() {
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		defer cancel()
		assert.NoError(t, f.Shutdown(ctx))
		assert.NoError(t, <-served)
	})
	f.conn = f.dial(t)
	f.kv, f.txn = kvdpb.NewKVServiceClient(f.conn), kvdpb.NewTxnServiceClient(f.conn)
	return f
}

func serveOn(s *service.Server, l net.Listener) <-chan error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return served
}

// startWith starts a server. Calls without a deadline, and those with too late a one, have as long
// as the test has, unless the options say otherwise.
func startWith(t testing.TB, l kv.Limits, o service.Options) *fixture {
	t.Helper()
	if o.Deadline == 0 {
		o.Deadline = testwait.Left()
	}
	store := servicetest.New(l)
	return start(t, store, func() *service.Server { return service.New(store, o, protocols...) })
}

// dial opens a connection that is closed before the server is shut down.
func (f *fixture) dial(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := connect(t, f.listener, opts...)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// connect opens a connection that the test closes.
func connect(t testing.TB, l *bufconn.Listener, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///memory", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, opts...)...)
	require.NoError(t, err)
	return conn
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
	t.Cleanup(cancel)
	return ctx
}

// put writes a key that a test needs.
func (f *fixture) put(t testing.TB, key, value string) uint64 {
	t.Helper()
	r, err := f.kv.Put(testContext(t), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: []byte(value)}})
	require.NoError(t, err)
	return r.Meta.Version
}

// get returns the value of a key at a version; false if it is absent.
func (f *fixture) get(t testing.TB, key string, at uint64) (string, bool) {
	t.Helper()
	r, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte(key), AtVersion: at})
	if status.Code(err) == codes.NotFound {
		return "", false
	}
	require.NoError(t, err)
	return string(r.Item.Value), true
}

// snapshot pins the newest version.
func (f *fixture) snapshot(t testing.TB) *kvdpb.BeginSnapshotResponse {
	t.Helper()
	r, err := f.txn.BeginSnapshot(testContext(t), &kvdpb.BeginSnapshotRequest{})
	require.NoError(t, err)
	return r
}

// Preconditions.
var (
	mustExist    = &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{MustExist: true}}
	mustNotExist = &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{MustNotExist: true}}
)

func versionEquals(v uint64) *kvdpb.Precondition {
	return &kvdpb.Precondition{Kind: &kvdpb.Precondition_VersionEquals{VersionEquals: v}}
}

func valueEquals(v string) *kvdpb.Precondition {
	return &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: []byte(v)}}
}

// requireFailure checks the status of a failed call and returns its details.
func requireFailure(t testing.TB, err error, code codes.Code, reason string) (*errdetails.ErrorInfo, time.Duration) {
	t.Helper()
	s, ok := status.FromError(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code.String(), s.Code().String(), "%v", err)
	var info *errdetails.ErrorInfo
	var retryAfter time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retryAfter = d.RetryDelay.AsDuration()
		}
	}
	require.NotNil(t, info, "%v", err)
	require.Equal(t, "kvd", info.Domain)
	require.Equal(t, reason, info.Reason, "%v", err)
	return info, retryAfter
}

// requests returns the count of a method and code.
func (f *fixture) requests(method string, code codes.Code) uint64 {
	stats := f.Stats()
	for _, r := range stats.Requests {
		if r.Method == method && r.Code == service.Code(code) {
			return r.Count
		}
	}
	return 0
}
