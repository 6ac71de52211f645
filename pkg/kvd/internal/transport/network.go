package transport

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Network is a backend.Backend that performs its calls on a server. See the package comment.
type Network struct {
	options    Options
	budget     *retryBudget
	requestIDs requestIDs
	// conns has the connections of the first endpoint, then those of the second, and so on. Each
	// endpoint has the same number.
	conns     []*conn
	endpoints int
	current   atomic.Int32 // index of the current endpoint
	leader    leaderSearch
	epochs    atomic.Bool // a server has told the epoch of its store: see GetFirst
	// incarnation is that of the cluster, as the first server has told it; nil: none has.
	incarnation atomic.Pointer[string]
	// releasing counts the snapshots that are being released; releases has a value for each that
	// is being released in the background.
	releasing sync.WaitGroup
	releases  chan struct{}

	// life ends when Close is called. It is the context of the goroutines in background.
	life       context.Context
	end        context.CancelFunc
	background sync.WaitGroup
}

var _ backend.Backend = (*Network)(nil)

// Open returns a Network for the servers of a target, which commas separate. It does no I/O.
func Open(target string, options Options) (*Network, error) {
	targets, err := options.endpointsOf(target)
	if err != nil {
		return nil, err
	}
	c := &Network{options: options, budget: newRetryBudget(), endpoints: len(targets), releases: make(chan struct{}, maxReleases)}
	c.requestIDs.init()
	c.leader.found = make(chan struct{})
	c.life, c.end = context.WithCancel(context.Background())
	for i, target := range targets {
		if err := c.addEndpoint(i, target); err != nil {
			return nil, fmt.Errorf("%w: endpoint %q: %w", backend.ErrInvalid, target, firstError(err, c.Close()))
		}
	}
	return c, nil
}

// addEndpoint adds the connections of the i-th endpoint.
func (c *Network) addEndpoint(i int, target string) error {
	options := &c.options
	if options.Dialer == nil {
		target = withPort(target)
	}
	if err := options.checkToken(target); err != nil {
		return err
	}
	for range options.Conns {
		dialing := options.dialOptions(target, c.connectTimeout())
		dialing = append(dialing, grpc.WithChainUnaryInterceptor(c.meetsInCall), grpc.WithChainStreamInterceptor(c.meetsInStream))
		cc, err := grpc.NewClient(options.target(target), dialing...)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, &conn{
			client: c, endpoint: i, grpc: cc, raw: options.rawTarget(target),
			kv: kvdpb.NewKVServiceClient(cc),
		})
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// The flow control windows of the client are as large as those of the server.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// maxReceiveBytes is above the highest limit that a server can have for values.
	maxReceiveBytes = 80 << 20
)

// dialOptions returns the options of a gRPC connection.
func (o *Options) dialOptions(target string, connect time.Duration) []grpc.DialOption {
	security := insecure.NewCredentials()
	if o.TLS != nil {
		security = credentials.NewTLS(o.TLS)
	}
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = 50*time.Millisecond, time.Second
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithUserAgent("kvd-go"),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connect}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceiveBytes)),
	}
	if o.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{o}))
	}
	if o.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return o.Dialer(ctx, target)
		}))
	}
	return opts
}

// target returns the target for gRPC, which does not resolve it if there is a Dialer.
func (o *Options) target(target string) string {
	if o.Dialer != nil && !strings.Contains(target, "://") {
		return "passthrough:///" + target
	}
	return target
}

// Ping implements backend.Backend.
func (c *Network) Ping(ctx context.Context) error {
	ready := false
	var trailer metadata.MD
	err := c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		answer, err := healthpb.NewHealthClient(conn.grpc).
			Check(ctx, &healthpb.HealthCheckRequest{Service: kvdpb.HealthReadiness}, append(opts, grpc.Trailer(&trailer))...)
		ready = answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
		return err
	})
	if err == nil && !ready {
		return &backend.Failure{Attempts: 1, Err: backend.ErrUnavailable, Message: strings.Join(append([]string{"the server is up but not ready"}, trailer.Get(kvdpb.NotReadyTrailer)...), ": ")}
	}
	return err
}

// Close implements backend.Backend.
func (c *Network) Close() (err error) {
	c.finishReleases()
	c.end()
	for _, conn := range c.conns {
		err = firstError(err, conn.grpc.Close())
	}
	c.background.Wait()
	for _, conn := range c.conns {
		conn.stop()
	}
	return err
}

// pick returns the connection of the current endpoint with the least load, the first of several, so
// that a lone caller always uses the same one.
func (c *Network) pick(load func(*conn) int64) *conn { return c.pickAbove(0, load) }

// pickFor returns the connection for an operation in a frame: the first with less than a full frame
// in flight, otherwise the one with the least. One connection makes larger frames; several
// connections are read by several goroutines.
func (c *Network) pickFor(key batchKey) *conn {
	return c.pickAbove(int64(c.options.limits(key).Ops), func(c *conn) int64 { return c.load(key).Load() })
}

// pickAbove is pick, but a load below enough counts as no load.
func (c *Network) pickAbove(enough int64, load func(*conn) int64) *conn {
	conns := c.candidates()
	best := conns[0]
	least := load(best)
	if least < enough {
		return best
	}
	for _, conn := range conns[1:] {
		l := load(conn)
		if l < enough {
			return conn
		}
		if l < least {
			best, least = conn, l
		}
	}
	return best
}
