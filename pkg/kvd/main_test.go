package kvd

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a server in memory with a way to it that a test can cut.
type cluster struct {
	store  *servicetest.Store // nil if it is another
	server *service.Server
	dialer func(context.Context, string) (net.Conn, error)
}

func clusterOf(s *servertest.Service) *cluster { return &cluster{s.Store, s.Server, s.Dial} }

// serve runs a server over connections in memory until the test ends.
func serve(t testing.TB, store *servicetest.Store, o service.Options) *cluster {
	t.Helper()
	return clusterOf(servertest.Serve(t, store, o))
}

// held is a cluster whose calls wait until they are let go or cancelled.
func held(t *testing.T) (c *cluster, entered chan struct{}, leave func()) {
	s, entered, leave := servertest.Held(t)
	return clusterOf(s), entered, leave
}

// openOn returns a client of a scripted server, closed when the test ends. A call of it waits as
// long as the test, unless an option says otherwise.
func openOn(t testing.TB, s *servertest.Scripted, opts ...Option) *Client {
	t.Helper()
	db, err := Open("memory", append([]Option{WithDialer(s.Dialer(t)), WithTimeout(testwait.Left())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// transports are the options of clients whose frames travel in either way.
var transports = map[string][]Option{"raw": nil, "gRPC": {WithoutRawFrames()}}

// everyTransport runs a test with either way of frames.
func everyTransport(t *testing.T, test func(t *testing.T, opts ...Option)) {
	for name, opts := range transports {
		t.Run(name, func(t *testing.T) { test(t, opts...) })
	}
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
		test(t, clusterOf(servertest.ServeStore(t, daemon.Store(e), service.Options{})).open(t))
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
