package kvd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
)

// Option is a choice made in Open.
type Option func(*config)

type config struct {
	tls        *tls.Config
	conns      int
	timeout    time.Duration
	batching   Batching
	synced     frameCaps // of frames that wait for the disk
	durability Durability
	logger     *slog.Logger
	grpcOnly   bool
	netOnly    bool
	hook       func(CallInfo)
	dialer     func(ctx context.Context, address string) (net.Conn, error)
}

// Batching says how concurrent calls share frames. A zero field is its default.
type Batching struct {
	// Disabled sends every operation as a call of its own.
	Disabled bool
	// MaxOps is the most operations in one frame, 1,024 at most. By default it is 256,
	// and 512 for writes that wait for the disk, since one sync serves them all.
	MaxOps int
	// MaxBytes is the size from which on a frame takes no further operation: 64 KiB by
	// default, and 128 KiB for writes that wait for the disk. A value that is larger, in
	// both cases than 64 KiB, travels by a call of its own.
	MaxBytes int
	// Window is the number of frames of one kind that may be under way on a
	// connection before operations queue for the next: 2 by default, 8 at most. A
	// larger window makes smaller frames. A frame of synced writes that is less than
	// half full leaves only when no other one is under way.
	Window int
}

// frameCaps bound a frame.
type frameCaps struct{ ops, bytes int }

// caps bound the frames of a class.
func (c *config) caps(class class) frameCaps {
	if class.waitsForDisk() {
		return c.synced
	}
	return frameCaps{c.batching.MaxOps, c.batching.MaxBytes}
}

const maxWindow = 8

func newConfig(opts []Option) (config, error) {
	c := config{conns: 2, timeout: 5 * time.Second, logger: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&c)
	}
	c.synced = frameCaps{c.batching.MaxOps, c.batching.MaxBytes}
	setDefault(&c.synced.ops, 512)
	setDefault(&c.synced.bytes, 128<<10)
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
	if c.timeout < 0 {
		return c, fmt.Errorf("%w: timeout %v is negative", ErrInvalid, c.timeout)
	}
	return c, c.durability.check()
}

func setDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// WithTLS secures every connection; without it they are plain text.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// WithConns sets the number of connections for frames, and of those for other
// calls, 2 by default. Operations in frames take the first one that has less than a
// full frame of them under way, else, as other calls, that with the least.
func WithConns(n int) Option { return func(c *config) { c.conns = n } }

// WithTimeout bounds calls whose context has no deadline, 5 s by default; 0 does
// not bound them. Of a scan it bounds the wait for each chunk.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithBatching changes how concurrent calls share frames.
func WithBatching(b Batching) Option { return func(c *config) { c.batching = b } }

// WithDurability sets the durability of writes that do not choose their own with
// Durable. Without it the server's default applies.
func WithDurability(d Durability) Option { return func(c *config) { c.durability = d } }

// WithoutRawFrames sends frames by gRPC at once, without asking the server whether
// it takes them on a connection of their own.
func WithoutRawFrames() Option { return func(c *config) { c.grpcOnly = true } }

// WithoutRawSockets reads and writes connections for frames by package net alone. Without
// it the client makes the system calls of small reads and writes itself if a connection is
// exactly a *net.TCPConn or a *net.UnixConn, which saves processor time.
func WithoutRawSockets() Option { return func(c *config) { c.netOnly = true } }

// WithLogger tells l when a stream to the server breaks. Without it the client is
// silent.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithDialer makes connections with dial, which gets the target as it was passed
// to Open. For tests over connections in memory, and tunnels: all methods of a connection
// that dial returns are used, unless it is exactly a *net.TCPConn or a *net.UnixConn; see
// WithoutRawSockets.
func WithDialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dialer = dial }
}

// Durability says what the acknowledgement of a write means.
//
// A write does not wait for the disk on account of a stronger write of another caller.
// There are three exceptions: a batch or transaction over several partitions waits for what
// precedes it in the log; a write waits for a batch or transaction that precedes it and
// reads or writes its key, or reads or deletes a range; and a scan, a snapshot or a transaction that begins waits until
// all writes that were acknowledged, and all that precede those, have their durability.
type Durability uint8

// The levels of durability, the weakest first.
const (
	// Default leaves the choice to the server.
	Default Durability = iota
	// Memory acknowledges once the write is visible; a crash of the server's
	// process may lose it.
	Memory
	// Buffered acknowledges once the server's kernel has the write: it survives a
	// crash of the process, a power cut may take it.
	Buffered
	// Sync acknowledges after the fsync that covers the write: it survives a power
	// cut.
	Sync
)

func (d Durability) check() error {
	if d > Sync {
		return fmt.Errorf("%w: durability %d is unknown", ErrInvalid, d)
	}
	return nil
}
