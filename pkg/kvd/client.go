package kvd

import (
	"context"
	"errors"
	"sync"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Client speaks to one store. Make one and share it. Safe for concurrent use.
type Client struct {
	backend    backend.Backend
	durability Durability // of writes that do not choose
	calls      gate

	// open ends when Close begins, and with it what nobody waits for.
	open     context.Context
	close    context.CancelFunc
	closed   sync.Once
	closeErr error
}

// Open returns a client of the server at target: "host:port", "host" for port 7070,
// "unix:path/to/socket", or another name that gRPC knows, such as
// "dns:///name:port". It does no I/O: the first call connects.
//
// A target may have several endpoints, separated by commas: "a:7070,b:7070", up to 16.
// All must serve the same store. The client uses the first one until it cannot be
// reached, or says that it stops; then the next one, and after the last the first again.
// Calls in flight are tried again there, writes under their request ids, so a write is
// still applied once. An endpoint has a second to accept a connection. Snapshots and
// transactions go on, as their leases are the store's.
//
// Errors: ErrInvalid for a target or option that makes no sense.
func Open(target string, opts ...Option) (*Client, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	n, err := openNetwork(target, config)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return newClient(withHook(n, config.hook), config.durability), nil
}

func newClient(b backend.Backend, d Durability) *Client {
	c := &Client{backend: b, durability: d}
	c.calls.init()
	c.open, c.close = context.WithCancel(context.Background())
	return c
}

// Ping reports whether the server can be reached and takes requests.
func (c *Client) Ping(ctx context.Context) error {
	const name = "ping"
	if err := c.enter(ctx, name, nil); err != nil {
		return err
	}
	defer c.calls.leave()
	return failed(name, c.backend.Ping(ctx))
}

// Close waits for the calls in flight, scans included, and disconnects. Calls
// that begin after it return ErrClosed, and snapshots that are still open end
// with their leases. It is idempotent. A scan's loop must not
// call it: it would wait for itself.
func (c *Client) Close() error {
	c.closed.Do(func() {
		c.close()
		c.calls.close()
		c.closeErr = c.backend.Close()
	})
	return c.closeErr
}

// enter begins a call, whose timings it resets; if it returns nil, c.calls.leave must
// follow. Errors: ErrClosed, and that of ctx if it has ended.
func (c *Client) enter(ctx context.Context, name string, t *Timings) error {
	if t != nil {
		*t = Timings{}
	}
	if !c.calls.enter() {
		return &Error{Op: name, Err: ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		c.calls.leave()
		return &Error{Op: name, Err: err}
	}
	return nil
}

// failed makes an error of the backend the error of a call; nil stays nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*backend.Failure](err)
	if !ok {
		return &Error{Op: op, Err: errors.Join(ErrInternal, err)}
	}
	f.Op = op
	return (*Error)(f)
}
