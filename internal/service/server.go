package service

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memory"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Server serves a Store over gRPC and by raw frames. Safe for concurrent use.
type Server struct {
	kvdpb.UnimplementedKVServiceServer
	kvdpb.UnimplementedTxnServiceServer
	kvdpb.UnimplementedAdminServiceServer

	store     *gatedStore
	limits    kv.Limits
	options   Options
	lifetimes lifetimes
	counters  counters
	memory    *memory.Account
	slow      *slowLog
	peers     peerTable
	waits     [waitKinds]*waits
	shares    [shareKinds]*shares
	leases    *leases
	intake    *intake

	grpc   *grpc.Server
	health *health.Server
	// draining ends when Shutdown begins, and working, which the connections of raw
	// frames live in, when it loses its patience.
	draining, working context.Context
	drain, cut        context.CancelFunc
	raw               sync.WaitGroup // those connections
}

// New returns a server of store. It takes no connection before Serve, and is
// ready as health checks see it.
func New(store Store, o Options) *Server { return newServer(store, o, defaultLifetimes) }

func newServer(store Store, o Options, t lifetimes) *Server {
	o = o.withDefaults()
	s := &Server{
		store:     newGatedStore(store, &o),
		limits:    store.Limits(),
		options:   o,
		lifetimes: t,
		memory:    memory.New(o.BufferBytes),
		slow:      newSlowLog(&o),
		health:    health.NewServer(),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.working, s.cut = context.WithCancel(context.Background())
	s.peers.peers = make(map[string]*peerEntry)
	s.waits = [waitKinds]*waits{
		waitForCalls:  {kind: waitForCalls, limit: amount{o.Streams, waitingBytes(o.BufferBytes, int64(MessageBytes(s.limits)))}, memory: s.memory},
		waitForHealth: {kind: waitForHealth, limit: amount{healthStreams, 1 << 20}},
	}
	s.intake = newIntake(s.memory)
	s.shares = [shareKinds]*shares{
		shareOfCalls:     {kind: shareOfCalls, limit: o.Streams},
		shareOfSnapshots: {kind: shareOfSnapshots, limit: o.Snapshots},
	}
	s.leases = newLeases(s.shares[shareOfSnapshots], s.store.ReleaseSnapshot)
	options := []grpc.ServerOption{
		grpc.Creds(newReception(s)),
		grpc.ForceServerCodecV2(frame.Codec()),
		grpc.MaxRecvMsgSize(MessageBytes(s.limits)),
		grpc.MaxSendMsgSize(MessageBytes(s.limits)),
		grpc.MaxHeaderListSize(headerListBytes),
		grpc.MaxConcurrentStreams(streamsPerConn),
		grpc.ConnectionTimeout(t.handshake),
		grpc.StaticStreamWindowSize(streamWindow(o.BufferBytes)),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(t.keepalive()),
		grpc.KeepaliveEnforcementPolicy(keepaliveEnforcement),
		grpc.InTapHandle(s.admit),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true),
	}
	s.grpc = grpc.NewServer(options...)
	registrar := reasonedRegistrar{s.grpc}
	kvdpb.RegisterKVServiceServer(registrar, s)
	kvdpb.RegisterTxnServiceServer(registrar, s)
	kvdpb.RegisterAdminServiceServer(registrar, s)
	healthpb.RegisterHealthServer(registrar, &readiness{Server: s.health, store: store})
	if s.options.Reflection {
		reflection.Register(s.grpc)
	}
	s.health.SetServingStatus(kvdpb.HealthLiveness, healthpb.HealthCheckResponse_SERVING)
	s.SetReady(true)
	return s
}

// SetReady says through the health service whether requests should be routed
// here. It refuses none by itself.
func (s *Server) SetReady(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{
		"", kvdpb.HealthReadiness,
		kvdpb.KVService_ServiceDesc.ServiceName, kvdpb.TxnService_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(name, status)
	}
}

// Serve takes connections from l until Shutdown, and then returns nil. It closes
// l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(s.limit(l))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown stops the server in order: it is not ready any more, takes no new
// connections, tells pipelines to move, and waits for what is in flight. When
// ctx ends first, it cuts what is left and returns the error of ctx; writes cut
// off are then in doubt for their callers. Either way nothing of the server runs
// when it returns, provided that the store keeps its obligation to return soon
// after a context ends. It is idempotent.
func (s *Server) Shutdown(ctx context.Context) error {
	s.SetReady(false)
	s.drain()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
		s.raw.Wait() // behind it, since new ones may begin until then
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		s.cut()
		s.grpc.Stop()
		<-stopped
		return ctx.Err()
	}
}

// codeOf is the code that gRPC will send for an error of a handler.
func codeOf(err error) codes.Code {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return status.Code(err)
}
