package grpcapi

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// api is the protocol gRPC of one server. It implements service.Protocol.
type api struct {
	kvdpb.UnimplementedKVServiceServer
	kvdpb.UnimplementedTxnServiceServer
	kvdpb.UnimplementedAdminServiceServer

	server  *service.Server
	streams *frameapi.Streams
	intake  *intake
	health  *health.Server
	unready atomic.Pointer[string] // why the server is not ready; nil: it is

	methods     map[string]*service.Method // by full name
	methodOther *service.Method

	grpc     *grpc.Server
	handover handover
	start    sync.Once
	serving  sync.WaitGroup // grpc.Serve
}

// New makes the protocol gRPC. It serves whatever is no other protocol, so it is the last
// one of a server.
func New(s *service.Server) service.Protocol { return newAPI(s) }

func newAPI(s *service.Server) *api {
	a := &api{
		server:  s,
		streams: frameapi.NewStreams(s),
		intake:  newIntake(s.Memory()),
		health:  health.NewServer(),
		methods: make(map[string]*service.Method),
	}
	a.handover.conns, a.handover.closed = make(chan *http2Conn), make(chan struct{})
	a.nameMethods()
	o, limits := s.Options(), s.Limits()
	a.grpc = grpc.NewServer(
		grpc.Creds(handshaken{}),
		grpc.ForceServerCodecV2(frame.Codec()),
		grpc.MaxRecvMsgSize(service.MessageBytes(limits)),
		grpc.MaxSendMsgSize(service.MessageBytes(limits)),
		grpc.MaxHeaderListSize(headerListBytes),
		grpc.MaxConcurrentStreams(streamsPerConn),
		grpc.ConnectionTimeout(o.Lifetimes.Handshake),
		grpc.StaticStreamWindowSize(streamWindow(o.BufferBytes)),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepaliveOf(&o.Lifetimes)),
		grpc.KeepaliveEnforcementPolicy(keepaliveEnforcement),
		grpc.InTapHandle(a.admit),
		grpc.UnaryInterceptor(a.unary),
		grpc.StreamInterceptor(a.stream),
		grpc.WaitForHandlers(true),
	)
	registrar := reasonedRegistrar{a.grpc}
	kvdpb.RegisterKVServiceServer(registrar, a)
	kvdpb.RegisterTxnServiceServer(registrar, a)
	kvdpb.RegisterAdminServiceServer(registrar, a)
	healthpb.RegisterHealthServer(registrar, &readiness{Server: a.health, api: a})
	if o.Reflection {
		reflection.Register(a.grpc)
	}
	if err := checkRules(a.grpc.GetServiceInfo()); err != nil {
		s.Refuse(err)
	}
	a.health.SetServingStatus(kvdpb.HealthLiveness, healthpb.HealthCheckResponse_SERVING)
	return a
}

// nameMethods has the methods of data counted by their own names, and all others together.
func (a *api) nameMethods() {
	a.methodOther = a.server.Method("other", service.Writes, service.SignedIn)
	kinds := map[string]service.Kind{
		kvdpb.KVService_Get_FullMethodName: service.Reads, kvdpb.KVService_BatchGet_FullMethodName: service.Reads,
		kvdpb.KVService_Scan_FullMethodName: service.Reads,
	}
	add := func(desc *grpc.ServiceDesc, name string) {
		full := "/" + desc.ServiceName + "/" + name
		kind, reads := kinds[full]
		if !reads {
			kind = service.Writes
		}
		a.methods[full] = a.server.Method(name, kind, rules[full])
	}
	for _, desc := range []*grpc.ServiceDesc{&kvdpb.KVService_ServiceDesc, &kvdpb.TxnService_ServiceDesc} {
		for _, m := range desc.Methods {
			add(desc, m.MethodName)
		}
		for _, m := range desc.Streams {
			add(desc, m.StreamName)
		}
	}
}

// methodOf returns the method of a full name.
func (a *api) methodOf(fullName string) *service.Method {
	if m := a.methods[fullName]; m != nil {
		return m
	}
	if !strings.HasPrefix(fullName, "/") {
		return a.methodOf("/" + fullName)
	}
	return a.methodOther
}

// ALPN implements service.Protocol.
func (a *api) ALPN() string { return "h2" }

// Matches implements service.Protocol. What is no protocol at all is gRPC's to refuse.
func (a *api) Matches(byte) bool { return true }

// Serve implements service.Protocol: gRPC takes the connection over.
func (a *api) Serve(conn *service.Conn) {
	a.start.Do(func() {
		// Its error is that it was stopped: the listener never fails.
		a.serving.Go(func() { _ = a.grpc.Serve(&a.handover) })
	})
	of := newConnection(conn)
	c := a.newHTTP2Conn(of, newReadyReader(conn.Socket()))
	conn.Use(c)
	of.end = func(why error) { c.endWith(h2EnhanceYourCalm, why.Error()) }
	if of.refused != nil {
		// Its calls are refused one by one, so that each tells its caller why.
		time.AfterFunc(a.server.Options().Lifetimes.Handshake, func() { _ = c.Close() })
	}
	if !a.handover.give(c) {
		_ = c.Close() // the server takes no connections any more
	}
}

// Drain implements service.Drainer.
func (a *api) Drain() {
	a.start.Do(func() {}) // it does not start any more
	_ = a.handover.Close()
	a.grpc.GracefulStop()
	a.serving.Wait()
}

// Stop implements service.Drainer.
func (a *api) Stop() { a.grpc.Stop() }

// handover is the listener that gRPC takes connections from.
type handover struct {
	conns  chan *http2Conn
	closed chan struct{}
	once   sync.Once
}

// give returns false if gRPC takes no connections any more.
func (h *handover) give(c *http2Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return handoverAddr{} }

type handoverAddr struct{}

func (handoverAddr) Network() string { return "handover" }
func (handoverAddr) String() string  { return "handover" }

// handshaken are the credentials of connections whose handshake is over.
type handshaken struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, conn.(*http2Conn).of, nil
}

// ClientHandshake is never called.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a server's credentials")
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName is never called.
func (handshaken) OverrideServerName(string) error { return nil }
