package kvd

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a server in memory with a way to it that a test can cut.
type cluster struct {
	store  *servicetest.Store // nil if it is another
	server *service.Server
	dialer func(context.Context, string) (net.Conn, error)
}

// serve runs a server over connections in memory until the test ends.
func serve(t testing.TB, store *servicetest.Store, o service.Options) *cluster {
	t.Helper()
	if store == nil {
		store = servicetest.New(kv.DefaultLimits)
	}
	c := serveStore(t, store, o)
	c.store = store
	return c
}

// serveStore is serve for any store.
func serveStore(t testing.TB, store service.Store, o service.Options) *cluster {
	t.Helper()
	c := &cluster{server: service.New(store, o, daemon.Protocols()...)}
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- c.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		defer cancel()
		assert.NoError(t, c.server.Shutdown(ctx))
		assert.NoError(t, <-served)
	})
	c.dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return c
}

// everyStore runs a test on the simple store, which says what is right, and on the
// engine.
func everyStore(t *testing.T, test func(t *testing.T, db *Client)) {
	t.Run("simple", func(t *testing.T) { test(t, openMemory(t)) })
	t.Run("engine", func(t *testing.T) {
		e, err := engine.Open("data", engine.Options{
			FS: vfs.NewMem(), Partitions: 4, MemtableBytes: 8 << 20, CacheBytes: 4 << 20, SegmentBytes: 1 << 20,
		})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		test(t, serveStore(t, daemon.Store(e), service.Options{}).open(t))
	})
}

// open returns a client of the cluster, closed when the test ends. A call of it
// waits as long as the test, unless an option says otherwise.
func (c *cluster) open(t testing.TB, opts ...Option) *Client {
	t.Helper()
	db, err := Open("memory", append([]Option{WithDialer(c.dialer), WithTimeout(testwait.Left())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func openMemory(t testing.TB, opts ...Option) *Client {
	t.Helper()
	return serve(t, nil, service.Options{}).open(t, opts...)
}

// waiting counts the operations that have not left.
func waiting(db *Client) (n int) {
	for _, c := range networkOf(db).conns {
		c.mu.Lock()
		for i := range c.mu.lanes {
			l := &c.mu.lanes[i]
			for _, f := range append(slices.Clone(l.sealed), l.open) {
				if f != nil {
					n += f.count - f.given
				}
			}
		}
		c.mu.Unlock()
	}
	return n
}

// carrierOf returns what brings the frames of a client's first connection, nil if
// there is nothing.
func carrierOf(db *Client) carrier {
	c := networkOf(db).conns[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.link == nil {
		return nil
	}
	return c.mu.link.carrier
}

// networkOf returns the backend of a client of a server.
func networkOf(db *Client) *network { return db.backend.(*network) }
