package kvd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/transport"
)

// Client is a connection to one store, through one server or several. Make one and share it.
// Safe for concurrent use.
type Client struct {
	backend    backend.Backend
	durability Durability // of writes that do not choose
	calls      gate
	habit      habit

	// open ends when Close begins. It is the context of background work.
	open     context.Context
	close    context.CancelFunc
	closed   sync.Once
	closeErr error
}

// Open returns a client of the server at target: "host:port", "host" for port 7070, ":port" for
// this machine, "unix:path/to/socket", or another name that gRPC resolves, such as
// "dns:///name:port". It does no I/O: the first call connects.
//
// "kvds://host:port" is an address with TLS: see WithTLS.
//
// A target may have up to 16 endpoints, separated by commas: "a:7070,b:7070". All must serve
// the same store, or be nodes of the same cluster. The client uses the first endpoint until it
// cannot be reached, is shutting down, does not answer for two seconds, does not answer for one
// and is not ready, or refuses a write because another node leads, then the next one; after the
// last it starts again with the first. It retries the calls in flight at the new endpoint,
// writes under their request ids, so each is still applied once. Snapshots and transactions
// continue, except at another node of a cluster: there they end with ErrVersionGone, as a
// transaction does at a node that has begun to lead since it read. Update and View then begin
// anew. With several endpoints a connection must be accepted within one second, otherwise
// within five.
//
// Errors: ErrInvalid if the target or an option is invalid. A target is invalid if no call could ever
// reach it: if an endpoint is empty, or is no address. With WithDialer an endpoint may be any name.
func Open(target string, opts ...Option) (*Client, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	addresses, err := config.secure(target)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	n, err := transport.Open(addresses, config.network())
	if err != nil {
		return nil, &Error{Op: "open", Err: fmt.Errorf("target %q: %w", target, err)}
	}
	return newClient(withHook(n, config.hook), config.durability), nil
}

func newClient(b backend.Backend, d Durability) *Client {
	c := &Client{backend: b, durability: d}
	c.calls.init()
	c.open, c.close = context.WithCancel(context.Background())
	return c
}

// Ping returns nil if the server can be reached and accepts requests.
func (c *Client) Ping(ctx context.Context) error {
	const name = "ping"
	in, err := c.enter(ctx, name)
	if err != nil {
		return err
	}
	defer in.leave()
	return failed(name, c.backend.Ping(ctx))
}

// Close waits for the calls in flight, scans included, and disconnects. Later calls return
// ErrClosed. Open snapshots end when their leases do. Close is idempotent. Calling it in the
// loop of a scan is a deadlock.
func (c *Client) Close() error {
	c.closed.Do(func() {
		c.close()
		c.calls.close()
		c.closeErr = c.backend.Close()
	})
	return c.closeErr
}

// enter begins a call and returns what the call must leave. Errors: ErrClosed, and that of ctx if it
// has ended.
func (c *Client) enter(ctx context.Context, name string) (*gateStripe, error) {
	ended := ctx.Err() // before enter: it panics if ctx is nil, and Close would wait for the call
	in := c.calls.enter()
	if in == nil {
		return nil, &Error{Op: name, Err: ErrClosed}
	}
	if ended != nil {
		in.leave()
		return nil, &Error{Op: name, Err: ended}
	}
	return in, nil
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
	if f.Op == "" {
		f.Op = op
	}
	return (*Error)(f)
}
