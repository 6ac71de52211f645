package kvd

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
	"github.com/kvd-db/kvd/internal/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a server in memory with a way to it that a test can cut.
type cluster struct {
	store  *servertest.Store
	server *server.Server
	dialer func(context.Context, string) (net.Conn, error)
}

// serve runs a server over connections in memory until the test ends.
func serve(t testing.TB, store *servertest.Store, o server.Options) *cluster {
	t.Helper()
	if store == nil {
		store = servertest.New(kv.DefaultLimits)
	}
	c := &cluster{store: store, server: server.New(store, o)}
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- c.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, c.server.Shutdown(ctx))
		assert.NoError(t, <-served)
	})
	c.dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return c
}

// open returns a client of the cluster, closed when the test ends.
func (c *cluster) open(t testing.TB, opts ...Option) *Client {
	t.Helper()
	db, err := Open("memory", append([]Option{WithDialer(c.dialer)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func openMemory(t testing.TB, opts ...Option) *Client {
	t.Helper()
	return serve(t, nil, server.Options{}).open(t, opts...)
}
