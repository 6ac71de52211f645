package servertest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
)

// Service is the service in memory.
type Service struct {
	Store  *servicetest.Store // nil if it serves another store
	Server *service.Server
	Dial   func(context.Context, string) (net.Conn, error)
}

// Serve serves a store over connections in memory until the test ends. Without a store it makes
// one.
func Serve(t testing.TB, store *servicetest.Store, o service.Options) *Service {
	t.Helper()
	if store == nil {
		store = servicetest.New(kv.DefaultLimits)
	}
	s := ServeStore(t, store, o)
	s.Store = store
	return s
}

// ServeStore is Serve for any store.
func ServeStore(t testing.TB, store service.Store, o service.Options) *Service {
	t.Helper()
	s := &Service{Server: service.New(store, o, daemon.Protocols()...)}
	l := memlisten.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		defer cancel()
		assert.NoError(t, s.Server.Shutdown(ctx))
		assert.NoError(t, <-served)
	})
	s.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return s
}

// Held is a service whose lookups and writes wait until leave is called or they are cancelled.
// entered has a value for each that has begun to wait.
func Held(t testing.TB) (s *Service, entered chan struct{}, leave func()) {
	store := servicetest.New(kv.DefaultLimits)
	entered, gate := make(chan struct{}, 100), make(chan struct{})
	wait := func(ctx context.Context) error {
		entered <- struct{}{}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error { return wait(ctx) }
	store.OnWrite = func(ctx context.Context, writes []*kv.Write) error {
		if err := wait(ctx); err != nil {
			for _, w := range writes {
				w.Err = fmt.Errorf("%w: %w", kv.ErrUncertain, err)
			}
		}
		return nil
	}
	return Serve(t, store, service.Options{}), entered, sync.OnceFunc(func() { close(gate) })
}

// VersionOf returns how many writes a store has applied.
func VersionOf(t testing.TB, store *servicetest.Store) uint64 {
	t.Helper()
	version, err := store.LookupAt(context.Background(), nil, 0)
	require.NoError(t, err)
	return uint64(version)
}
