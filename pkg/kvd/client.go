package kvd

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Client speaks to one server. Make one and share it. Safe for concurrent use.
type Client struct {
	config config
	budget *retryBudget
	names  names
	conns  []*conn
	calls  gate
	// releases has a value for each snapshot that is being given back.
	releases chan struct{}

	// open ends when Close begins, and with it what nobody waits for.
	open  context.Context
	close context.CancelFunc
	// life ends when Close has waited for the calls in flight; background counts
	// the goroutines that it ends.
	life       context.Context
	end        context.CancelFunc
	background sync.WaitGroup
	closed     sync.Once
	closeErr   error
}

// Open returns a client of the server at target: "host:port", "host" for port 7070,
// "unix:path/to/socket", or another name that gRPC knows, such as
// "dns:///name:port". It does no I/O: the first call connects.
//
// Errors: ErrInvalid for a target or option that makes no sense.
func Open(target string, opts ...Option) (*Client, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	if config.dialer == nil {
		target = withPort(target)
	}
	c := &Client{config: config, budget: newRetryBudget(), releases: make(chan struct{}, maxReleases)}
	c.names.init()
	c.calls.init()
	c.open, c.close = context.WithCancel(context.Background())
	c.life, c.end = context.WithCancel(context.Background())
	for range config.conns {
		cc, err := grpc.NewClient(config.target(target), config.dialOptions(target)...)
		if err != nil {
			closeErr := c.Close()
			return nil, &Error{Op: "open", Err: fmt.Errorf("%w: target %q: %w", ErrInvalid, target, firstError(err, closeErr))}
		}
		c.conns = append(c.conns, &conn{
			client: c, grpc: cc, raw: config.rawTarget(target),
			kv: kvdpb.NewKVServiceClient(cc), txn: kvdpb.NewTxnServiceClient(cc),
		})
	}
	return c, nil
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
	// The windows of what the server may send before we take it: as large as the
	// server's own.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// maxReceiveBytes is above the largest value that any server may be set to.
	maxReceiveBytes = 80 << 20
)

func (c *config) dialOptions(target string) []grpc.DialOption {
	security := insecure.NewCredentials()
	if c.tls != nil {
		security = credentials.NewTLS(c.tls)
	}
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = 50*time.Millisecond, time.Second
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithUserAgent("kvd-go"),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceiveBytes)),
	}
	if c.dialer != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return c.dialer(ctx, target)
		}))
	}
	return opts
}

// target is what gRPC resolves: nothing if there is a dialer.
func (c *config) target(target string) string {
	if c.dialer != nil && !strings.Contains(target, "://") {
		return "passthrough:///" + target
	}
	return target
}

// Ping reports whether the server can be reached and takes requests.
func (c *Client) Ping(ctx context.Context) error {
	ready := false
	err := c.unary(ctx, "ping", func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		answer, err := healthpb.NewHealthClient(conn.grpc).
			Check(ctx, &healthpb.HealthCheckRequest{Service: kvdpb.HealthReadiness}, opts...)
		ready = answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
		return err
	})
	if err == nil && !ready {
		return &Error{Op: "ping", Attempts: 1, Err: ErrUnavailable, Message: "the server is up but not ready"}
	}
	return err
}

// Close waits for the calls in flight, scans included, and disconnects. Calls
// that begin after it return ErrClosed, and snapshots that are still open end
// with their leases. It is idempotent. A scan's loop must not
// call it: it would wait for itself.
func (c *Client) Close() error {
	c.closed.Do(func() {
		c.close()
		c.calls.close()
		c.end()
		for _, conn := range c.conns {
			c.closeErr = firstError(c.closeErr, conn.grpc.Close())
		}
		c.background.Wait()
		for _, conn := range c.conns {
			conn.stop()
		}
	})
	return c.closeErr
}

// pick returns the connection with the least under way, the first among equals,
// so that a lone caller always meets the same one.
func (c *Client) pick(load func(*conn) int64) *conn { return c.pickAbove(0, load) }

// pickFor returns the connection for operations in frames: the first with less
// under way than a full frame has, else that with the least. One connection makes
// larger frames than several; several are read by more than one goroutine.
func (c *Client) pickFor(class class) *conn {
	return c.pickAbove(int64(c.config.caps(class).ops), func(c *conn) int64 { return c.load(class).Load() })
}

// pickAbove is pick where a load below enough counts as none.
func (c *Client) pickAbove(enough int64, load func(*conn) int64) *conn {
	best := c.conns[0]
	least := load(best)
	if least < enough {
		return best
	}
	for _, conn := range c.conns[1:] {
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
