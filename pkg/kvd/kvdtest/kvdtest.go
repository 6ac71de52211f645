// Package kvdtest gives tests a real kvd server in one line:
//
//	db := kvdtest.New(t)
//	err := db.Put(ctx, []byte("hello"), []byte("world"))
//
// It runs the engine and the service of production, with files in memory and connections in
// memory: it writes nothing to a disk, opens no port, and removes everything when the test ends.
// Tests may run in parallel, each with its own server.
//
// NewCluster starts a cluster of real nodes instead, which the test can kill, cut off and start
// again.
package kvdtest

import (
	"context"
	"net"
	"testing"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
)

// The store of a test is small, so that it starts within milliseconds.
const (
	partitions    = 4
	memtableBytes = 8 << 20
	cacheBytes    = 4 << 20
	segmentBytes  = 1 << 20
	pipeBytes     = 64 << 10
)

// New starts a server and returns a client of it. When the test ends, New closes both, and
// fails the test if that fails. The options are those of kvd.Open. Without kvd.WithTimeout, a
// call may take as long as the test binary (go test -timeout): on a loaded machine the default
// of kvd.Open would fail tests in which nothing is wrong.
func New(t testing.TB, opts ...kvd.Option) *kvd.Client {
	t.Helper()
	store, err := engine.Open("data", engine.Options{
		FS: vfs.NewMem(), Partitions: partitions,
		MemtableBytes: memtableBytes, CacheBytes: cacheBytes, SegmentBytes: segmentBytes,
	})
	if err != nil {
		t.Fatalf("kvdtest: %v", err)
	}
	s := service.New(daemon.Store(store), service.Options{}, daemon.Protocols()...)
	pipe := memlisten.Listen(pipeBytes)
	served := make(chan error, 1)
	go func() { served <- s.Serve(pipe) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }
	client, err := kvd.Open("kvdtest", append([]kvd.Option{kvd.WithDialer(dial), kvd.WithTimeout(testwait.Left())}, opts...)...)
	t.Cleanup(func() {
		if client != nil {
			check(t, "close the client", client.Close())
		}
		check(t, "stop the server", s.Shutdown(context.Background()))
		check(t, "serve", <-served)
		check(t, "close the store", store.Close())
	})
	if err != nil {
		t.Fatalf("kvdtest: %v", err)
	}
	return client
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("kvdtest: %s: %v", what, err)
	}
}
