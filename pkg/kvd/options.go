package kvd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/transport"
)

// Option configures the client that Open returns.
type Option func(*config)

type config struct {
	tls        *tls.Config
	token      func() (string, error)
	conns      int
	timeout    time.Duration
	batching   Batching
	synced     transport.Limits // of frames that wait for the disk
	durability Durability
	logger     *slog.Logger
	grpcOnly   bool
	netOnly    bool
	hook       func(CallInfo)
	dialer     func(ctx context.Context, address string) (net.Conn, error)
}

// Batching configures how concurrent calls share frames. A zero field has its default.
type Batching struct {
	// Disabled sends every operation as a separate gRPC call.
	Disabled bool
	// MaxOps is the maximum number of operations in one frame, up to 1,024. The default is
	// 256, and 512 for writes that wait for the disk, because one sync serves them all.
	MaxOps int
	// MaxBytes is the maximum size of a frame, up to 1 MiB. The default is 64 KiB, and
	// 128 KiB for writes that wait for the disk. A larger value is sent as a separate gRPC
	// call; by default one above 64 KiB.
	MaxBytes int
	// Window is the number of frames of one kind that may be in flight on a connection
	// before operations wait for the next frame: 2 by default, up to 8. A larger window
	// makes smaller frames. A frame of synced writes that is less than half full is sent
	// only while no other one is in flight.
	Window int
}

const maxWindow = 8

func newConfig(opts []Option) (config, error) {
	c := config{conns: 2, timeout: 5 * time.Second, logger: slog.New(slog.DiscardHandler)}
	for i, o := range opts {
		if o == nil {
			return c, nilOption(i)
		}
		o(&c)
	}
	c.synced = transport.Limits{Ops: c.batching.MaxOps, Bytes: c.batching.MaxBytes}
	setDefault(&c.synced.Ops, 512)
	setDefault(&c.synced.Bytes, 128<<10)
	setDefault(&c.batching.MaxOps, 256)
	setDefault(&c.batching.MaxBytes, 64<<10)
	setDefault(&c.batching.Window, 2)
	for _, check := range []struct {
		what        string
		v, min, max int
	}{
		{"connections", c.conns, 1, 64},
		{"operations of a frame", c.batching.MaxOps, 1, frame.MaxOps},
		{"bytes of a frame", c.batching.MaxBytes, 1, 1 << 20},
		{"frames of a window", c.batching.Window, 1, maxWindow},
	} {
		if check.v < check.min || check.v > check.max {
			return c, fmt.Errorf("%w: %s: %d, want %d to %d", ErrInvalid, check.what, check.v, check.min, check.max)
		}
	}
	switch {
	case c.timeout < 0:
		return c, fmt.Errorf("%w: timeout %v is negative", ErrInvalid, c.timeout)
	case c.logger == nil:
		return c, fmt.Errorf("%w: the logger is nil", ErrInvalid)
	}
	return c, c.durability.check()
}

// network returns the options of the network.
func (c *config) network() transport.Options {
	return transport.Options{
		Conns: c.conns, Timeout: c.timeout,
		Unframed: c.batching.Disabled, Window: c.batching.Window,
		Frames: transport.Limits{Ops: c.batching.MaxOps, Bytes: c.batching.MaxBytes}, SyncedFrames: c.synced,
		GRPCOnly: c.grpcOnly, NetOnly: c.netOnly,
		Logger: c.logger, TLS: c.tls, Token: c.token, Dialer: c.dialer,
	}
}

// nilOption is the error of a call whose i-th option is nil.
func nilOption(i int) error {
	return fmt.Errorf("%w: option %d is nil, so it is not known what it was to choose; leave it out", ErrInvalid, i+1)
}

// nilFunc is the error of a call that was to call a function which is nil.
func nilFunc(op string) error {
	return &Error{Op: op, Err: fmt.Errorf("%w: the function is nil, so there is nothing to call; pass a function", ErrInvalid)}
}

func setDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// WithTLS secures every connection with TLS. Without it, connections to kvds:// addresses
// have TLS with the authorities of the system, and others are plain text. Certificates of the
// client are those of the configuration.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// WithToken signs in with a token, as kvd token new prints it. Without TLS it is sent to this
// machine only, or to what WithDialer connects to. An empty token is none.
func WithToken(token string) Option {
	if token == "" {
		return WithTokenFrom(nil)
	}
	return WithTokenFrom(func() (string, error) { return token, nil })
}

// WithTokenFrom is WithToken with a token that may change, for example in a file. The function
// is called for each connection for frames and each gRPC call, concurrently, and should
// return soon. If it fails, calls return ErrUnauthenticated. A nil function has no token.
func WithTokenFrom(token func() (string, error)) Option { return func(c *config) { c.token = token } }

// WithConns sets the number of connections of each kind (for frames, and for gRPC), 1 to 64,
// for each endpoint. The default is 2. An operation uses the first connection that has less
// than a full frame of operations in flight, otherwise the one with the fewest.
func WithConns(n int) Option { return func(c *config) { c.conns = n } }

// WithTimeout bounds calls whose context has no deadline. The default is 5 s; 0 means no
// bound. For a scan it bounds the wait for each chunk of items.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithBatching configures how concurrent calls share frames.
func WithBatching(b Batching) Option { return func(c *config) { c.batching = b } }

// WithDurability sets the durability of writes without Durable. Without it the server's
// default applies.
func WithDurability(d Durability) Option { return func(c *config) { c.durability = d } }

// WithoutRawFrames sends frames only in streams of gRPC, without trying connections for frames
// first.
func WithoutRawFrames() Option { return func(c *config) { c.grpcOnly = true } }

// WithoutRawSockets uses only package net for the connections for frames. By default, if a
// connection is exactly a *net.TCPConn or *net.UnixConn, the client makes the system calls for
// small reads and writes itself, which saves processor time.
func WithoutRawSockets() Option { return func(c *config) { c.netOnly = true } }

// WithLogger reports broken connections to l. Without it the client logs nothing.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithDialer makes connections with dial, which gets the endpoint as it was passed to Open.
// It serves tests in memory and tunnels. The client uses all methods of the connection, unless
// it is exactly a *net.TCPConn or *net.UnixConn: see WithoutRawSockets.
func WithDialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dialer = dial }
}

// Durability is what the acknowledgement of a write means.
//
// A write does not wait for the disk because another caller's write is stronger, with three
// exceptions. A batch or transaction over several partitions waits for everything before it
// in the log. A write waits for an earlier batch or transaction that read or wrote its key, or
// that read or deleted a range. A scan, and the beginning of a snapshot or transaction, waits
// until all acknowledged writes, and all writes before those, have their durability.
type Durability uint8

// The levels of durability, the weakest first.
const (
	// Default leaves the choice to the server.
	Default Durability = iota
	// Memory acknowledges when reads see the write. A crash of the server's process may
	// lose it.
	Memory
	// Buffered acknowledges when the server's kernel has the write. It survives a crash of
	// the process; a power cut may lose it.
	Buffered
	// Sync acknowledges after an fsync that covers the write. It survives a power cut.
	Sync
)

func (d Durability) check() error {
	if d > Sync {
		return fmt.Errorf("%w: durability %d is unknown", ErrInvalid, d)
	}
	return nil
}
