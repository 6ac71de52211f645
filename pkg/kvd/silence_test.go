package kvd

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// stoppable are connections to a process that can be stopped, as by SIGSTOP: the connections stay, take
// what is written, and nothing comes.
type stoppable struct {
	dial    func(context.Context, string) (net.Conn, error)
	stopped atomic.Bool
}

func (s *stoppable) dialer(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &stoppableConn{Conn: conn, by: s, closed: make(chan struct{})}, nil
}

type stoppableConn struct {
	net.Conn
	by     *stoppable
	once   sync.Once
	closed chan struct{}
}

func (c *stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.by.stopped.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *stoppableConn) Write(b []byte) (int, error) {
	if c.by.stopped.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *stoppableConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// ways are the ways in which calls travel.
var ways = map[string][]Option{
	"raw frames": nil, "frames in gRPC": {WithoutRawFrames()}, "calls of gRPC": {WithBatching(Batching{Disabled: true})},
}

// Every kind of call, in whichever way it travels, goes on at the next endpoint if the current one
// stops, well within its timeout.
func TestEveryCallLeavesAnEndpointThatStops(t *testing.T) {
	for way, opts := range ways {
		for name := range callsOf(nil) {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := servicetest.New(kv.DefaultLimits)
					a, b := &stoppable{dial: serve(t, store, service.Options{}).dialer}, serve(t, store, service.Options{})
					db := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"a:1": a.dialer, "b:1": b.dialer}, opts...)
					put(t, db, "k", "v")
					require.NoError(t, callsOf(db)[name](t.Context()))
					a.stopped.Store(true)
					put(t, openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"b:1": b.dialer}), "k", "v")
					begun := time.Now()
					require.NoError(t, callsOf(db)[name](t.Context()))
					assert.Less(t, time.Since(begun), 4*time.Second)
				})
			})
		}
	}
}

// A connection is lost, as when the machine of the server is replaced: what is sent on it arrives nowhere,
// and nothing ends it. A call that may take an hour does not keep it for the others.
func TestALongCallDoesNotKeepALostConnection(t *testing.T) {
	for way, opts := range transports {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := serve(t, nil, service.Options{})
				before := &stoppable{dial: server.dialer}
				dial := func(ctx context.Context, address string) (net.Conn, error) {
					if before.stopped.Load() {
						return server.dialer(ctx, address)
					}
					return before.dialer(ctx, address)
				}
				db := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"a:1": dial}, append(opts, WithConns(1))...)
				put(t, db, "k", "v")
				before.stopped.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begun := time.Now()
				written := make(chan error, 1)
				go func() { written <- db.Put(ctx, []byte("long"), nil) }()
				synctest.Wait()
				for {
					_, err := db.Get(t.Context(), []byte("k"))
					if err == nil {
						break
					}
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				assert.Less(t, time.Since(begun), 70*time.Second)
				require.NoError(t, <-written, "it is sent again")
				assert.Less(t, time.Since(begun), 70*time.Second)
			})
		})
	}
}

// openSeveral opens a client, with the default timeout, of endpoints in the order of their names.
func openSeveral(t *testing.T, dials map[string]func(context.Context, string) (net.Conn, error), opts ...Option) *Client {
	target := ""
	for _, a := range []string{"a:1", "b:1"} {
		if dials[a] != nil {
			if target != "" {
				target += ","
			}
			target += a
		}
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) { return dials[address](ctx, address) }
	db, err := Open(target, append([]Option{WithDialer(dial)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// fullStore takes no writes, as its disk is full.
type fullStore struct{ *servicetest.Store }

func (fullStore) ReadOnly() error { return &kv.ReadOnlyError{} }

// A read that takes long stays at an endpoint that takes no writes and serves reads.
func TestAReadStaysAtAnEndpointThatTakesNoWrites(t *testing.T) {
	for way, opts := range ways {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := servicetest.New(kv.DefaultLimits)
				a, b := clusterOf(servertest.ServeStore(t, fullStore{store}, service.Options{})), serve(t, nil, service.Options{})
				put(t, serve(t, store, service.Options{}).open(t), "k", "v")
				store.OnLookup = func(context.Context, []*kv.Lookup) error {
					time.Sleep(3 * time.Second)
					return nil
				}
				db := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"a:1": a.dialer, "b:1": b.dialer}, opts...)
				_, err := db.Get(t.Context(), []byte("k"))
				require.NoError(t, err, "the other endpoint does not have the key")
			})
		})
	}
}

// The store of an endpoint has failed, and its process is about to end. Calls go on at the next one.
func TestEveryCallLeavesAStoreThatFailed(t *testing.T) {
	broken := servicetest.New(kv.DefaultLimits)
	fail := func() error { return kv.ErrFailed }
	broken.OnLookup = func(context.Context, []*kv.Lookup) error { return fail() }
	broken.OnWrite = func(context.Context, []*kv.Write) error { return fail() }
	broken.OnApply = func(context.Context, *kv.WriteBatch) error { return fail() }
	broken.OnSnapshot = func(context.Context) error { return fail() }
	a, b := serve(t, broken, service.Options{}), serve(t, nil, service.Options{})
	whole := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"b:1": b.dialer})
	for name := range callsOf(nil) {
		put(t, whole, "k", "v") // one of the calls deletes it
		db := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"a:1": a.dialer, "b:1": b.dialer}, WithTimeout(testwait.Left()))
		require.NoError(t, callsOf(db)[name](t.Context()), name)
	}
	err := openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"a:1": a.dialer}).Put(t.Context(), []byte("k"), nil)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Equal(t, 1, requireError(t, err).Attempts, "a lone store that failed is not asked again")
}

// A node that the others of its cluster do not reach answers no reads. Calls leave it once it says that
// it is not ready, also if it says so only later.
func TestReadsLeaveANodeThatIsNotReady(t *testing.T) {
	for way, opts := range ways {
		for after, want := range map[time.Duration]float64{0: 1, 1500 * time.Millisecond: 2} {
			t.Run(way+"/"+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					alone := servicetest.New(kv.DefaultLimits)
					alone.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error {
						<-ctx.Done()
						return ctx.Err()
					}
					a, b := serve(t, alone, service.Options{}), serve(t, nil, service.Options{})
					dials := map[string]func(context.Context, string) (net.Conn, error){"a:1": a.dialer, "b:1": b.dialer}
					put(t, openSeveral(t, map[string]func(context.Context, string) (net.Conn, error){"b:1": b.dialer}), "k", "v")
					db := openSeveral(t, dials, opts...)
					time.AfterFunc(after, func() { a.server.SetReady(errors.New("no node leads")) })
					begun := time.Now()
					value, err := db.Get(t.Context(), []byte("k"))
					require.NoError(t, err)
					require.Equal(t, "v", string(value))
					assert.InDelta(t, want, time.Since(begun).Seconds(), 0.5)
				})
			})
		}
	}
}
