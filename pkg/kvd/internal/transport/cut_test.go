package transport

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// A shutdown whose grace period ends cuts off the calls in progress. Their callers,
// whose contexts live, are told that the server is unavailable, not that they were
// cancelled.
func TestCallsThatAHardShutdownCutsAreUnavailable(t *testing.T) {
	calls := map[string]func(context.Context, caller) error{
		"get": func(ctx context.Context, db caller) error { _, err := db.get(ctx, "k"); return err },
		"put": func(ctx context.Context, db caller) error { return db.put(ctx, "k", nil) },
		"batch": func(ctx context.Context, db caller) error {
			_, err := db.Apply(ctx, []backend.Mutation{{Kind: backend.Put, Key: []byte("k")}}, backend.WriteOptions{})
			return err
		},
		"scan": func(ctx context.Context, db caller) error {
			return db.Scan(ctx, &backend.Scan{}, func(backend.Item) bool { return true })
		},
	}
	for way, o := range map[string]Options{
		"raw": {}, "gRPC": {GRPCOnly: true}, "alone": {Unframed: true},
	} {
		for name, call := range calls {
			t.Run(fmt.Sprintf("%s, %s", name, way), func(t *testing.T) {
				for range 20 { // what the client hears first is a race
					var entered atomic.Bool
					until := func(ctx context.Context) error {
						entered.Store(true)
						<-ctx.Done()
						return ctx.Err()
					}
					store := servicetest.New(kv.DefaultLimits)
					db := servertest.Serve(t, store, service.Options{})
					client := openBy(t, db.Dial, o)
					client.mustPut(t, "k", "v")
					store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error { return until(ctx) }
					store.OnWrite = func(ctx context.Context, _ []*kv.Write) error { return until(ctx) }
					store.OnApply = func(ctx context.Context, _ *kv.WriteBatch) error { return until(ctx) }
					store.OnScan = func(ctx context.Context, _ *kv.Item) error { return until(ctx) }
					client.budget.tenths.Store(0) // no second try
					ended := make(chan error, 1)
					go func() { ended <- call(t.Context(), client) }()
					testwait.Until(t, entered.Load)
					now, cancel := context.WithCancel(t.Context())
					cancel()
					assert.ErrorIs(t, db.Server.Shutdown(now), context.Canceled)
					err := <-ended
					assert.ErrorIs(t, err, backend.ErrUnavailable)
					assert.NotErrorIs(t, err, context.Canceled)
				}
			})
		}
	}
}

// A cancelled write is in doubt if its frame was sent, and did not happen if it
// was still queued.
func TestACancelledCall(t *testing.T) { bothTransports(t, aCancelledCall) }

func aCancelledCall(t *testing.T, o Options) {
	for _, alone := range []bool{false, true} {
		c, entered, leave := servertest.Held(t)
		defer leave()
		o.Conns, o.Window, o.Unframed = 1, 1, alone
		db := openBy(t, c.Dial, o)
		ctx, cancel := context.WithCancel(context.Background())
		put, get := make(chan error, 1), make(chan error, 1)
		go func() { put <- db.put(ctx, "sent", []byte("v")) }()
		<-entered
		go func() {
			_, err := db.get(ctx, "sent")
			get <- err
		}()
		<-entered
		queued := make(chan error, 1)
		if !alone {
			go func() { queued <- db.put(ctx, "queued", []byte("v")) }()
			testwait.Until(t, func() bool { return db.waiting() == 1 })
		}
		cancel()
		err := <-put
		require.ErrorIs(t, err, backend.ErrUncertain)
		require.ErrorIs(t, err, context.Canceled)
		err = <-get
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, backend.ErrUncertain)
		if !alone {
			err = <-queued
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, backend.ErrUncertain)
		}
		leave()
		// Later calls are not affected.
		require.NoError(t, db.put(context.Background(), "later", []byte("v")))
		_, err = db.get(context.Background(), "queued")
		require.ErrorIs(t, err, backend.ErrNotFound)
	}
}
