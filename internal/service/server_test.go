package service_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func (f *fixture) healthOf(t testing.TB, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	r, err := healthpb.NewHealthClient(f.conn).Check(testContext(t), &healthpb.HealthCheckRequest{Service: service})
	require.NoError(t, err)
	return r.Status
}

func TestHealth(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	for _, ready := range []bool{true, false, true} {
		var why error
		if !ready {
			why = errors.New("it opens: 100 %")
		}
		f.SetReady(why)
		want := healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			want = healthpb.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", "kvd.v1.KVService", "kvd.v1.TxnService", "readiness"} {
			assert.Equal(t, want, f.healthOf(t, service), service)
		}
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, f.healthOf(t, "liveness"))
	}
}

func TestReflectionIsAChoice(t *testing.T) {
	for _, on := range []bool{false, true} {
		f := startWith(t, kv.DefaultLimits, service.Options{Reflection: on})
		stream, err := reflectionpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(testContext(t))
		require.NoError(t, err)
		err = stream.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
		})
		if err != nil { // refused already: Recv says why
			require.ErrorIs(t, err, io.EOF)
		}
		r, err := stream.Recv()
		if !on {
			assert.Equal(t, codes.Unimplemented, status.Code(err))
			continue
		}
		require.NoError(t, err)
		var names []string
		for _, service := range r.GetListServicesResponse().GetService() {
			names = append(names, service.Name)
		}
		assert.Subset(t, names, []string{"kvd.v1.KVService", "kvd.v1.TxnService"})
	}
}

// A shutdown lets what is in flight finish, refuses what still arrives, and
// leaves nothing in doubt.
func TestShutdownFinishesWhatIsInFlight(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered, gate := make(chan struct{}, 2), make(chan struct{})
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		entered <- struct{}{}
		<-gate
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	ctx := testContext(t)
	p := f.pipeline(t)
	p.send(putOp(1, "framed", "v"))
	<-entered
	unary := make(chan error, 1)
	go func() {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("alone")}})
		unary <- err
	}()
	<-entered
	watch, err := healthpb.NewHealthClient(f.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, first.Status)

	stopped := make(chan error, 1)
	go func() { stopped <- f.Shutdown(ctx) }()
	r, err := p.stream.Recv()
	require.NoError(t, err)
	assert.True(t, r.GoingAway)
	p.send(putOp(2, "late", "v"))
	late := p.result()
	assert.EqualValues(t, 2, late.Tag)
	assert.Equal(t, "SHUTTING_DOWN", late.Status.GetReason())
	for err == nil { // the watch may have seen that the server is not ready
		_, err = watch.Recv()
	}
	assert.Equal(t, codes.Canceled, status.Code(err), "a watch does not hold up a shutdown")
	testwait.Until(t, func() bool {
		conn, err := f.listener.DialContext(ctx)
		return err != nil || conn.Close() != nil
	}, "no new connections")

	close(gate)
	assert.EqualValues(t, 1, p.result().Tag)
	p.close()
	require.NoError(t, <-unary)
	require.NoError(t, <-stopped)
	assert.Equal(t, 2, store.Len())
}

// When its grace period ends, a shutdown cuts what is left and says so.
func TestShutdownEndsWithItsContext(t *testing.T) {
	store, entered, _ := waiting()
	s := service.New(store, service.Options{}, protocols...)
	f := &fixture{Server: s, listener: bufconn.Listen(1 << 16)}
	served := serveOn(s, f.listener)
	f.conn = f.dial(t)
	f.kv = kvdpb.NewKVServiceClient(f.conn)
	answer := make(chan error, 1)
	go func() {
		_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
		answer <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	require.NoError(t, <-served)
	require.Equal(t, codes.Unavailable, status.Code(<-answer))
	assert.NoError(t, s.Shutdown(testContext(t)), "twice is harmless")
	stats := s.Stats()
	assert.Zero(t, stats.Streams)
	assert.Zero(t, stats.Bytes)
	assert.Zero(t, stats.Connections)
}

// A client that does not leave a stream that is going away is cut off, but not
// while it is being served.
func TestAPipelineThatDoesNotLeaveIsCutOff(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	p := f.pipeline(t)
	p.send(putOp(1, "k", "v"))
	p.result()
	require.NoError(t, f.Shutdown(testContext(t)), "it does not wait for the client")
	r, err := p.stream.Recv()
	require.NoError(t, err)
	assert.True(t, r.GoingAway)
	_, err = p.stream.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestServeReportsABrokenListener(t *testing.T) {
	s := service.New(servicetest.New(kv.DefaultLimits), service.Options{}, protocols...)
	l := bufconn.Listen(1)
	require.NoError(t, l.Close())
	err := s.Serve(l)
	require.Error(t, err)
	assert.False(t, errors.Is(err, context.Canceled))
	require.NoError(t, s.Shutdown(testContext(t)))
}
