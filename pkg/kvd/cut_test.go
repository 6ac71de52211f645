package kvd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A shutdown whose grace period ends cuts off the calls in progress. Their callers,
// whose contexts live, are told that the server is unavailable, not that they were
// cancelled.
func TestCallsThatAHardShutdownCutsAreUnavailable(t *testing.T) {
	calls := map[string]func(context.Context, *Client) error{
		"get": func(ctx context.Context, db *Client) error { _, err := db.Get(ctx, []byte("k")); return err },
		"put": func(ctx context.Context, db *Client) error { return db.Put(ctx, []byte("k"), nil) },
		"batch": func(ctx context.Context, db *Client) error {
			_, err := db.Apply(ctx, new(Batch).Put([]byte("k"), nil))
			return err
		},
		"scan": func(ctx context.Context, db *Client) error {
			for _, err := range db.Scan(ctx, All()) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for way, o := range map[string]Option{
		"raw": func(*config) {}, "gRPC": WithoutRawFrames(), "alone": WithBatching(Batching{Disabled: true}),
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
					db := serve(t, store, service.Options{})
					client := db.open(t, o)
					require.NoError(t, client.Put(t.Context(), []byte("k"), []byte("v")))
					store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error { return until(ctx) }
					store.OnWrite = func(ctx context.Context, _ []*kv.Write) error { return until(ctx) }
					store.OnApply = func(ctx context.Context, _ *kv.WriteBatch) error { return until(ctx) }
					store.OnScan = func(ctx context.Context, _ *kv.Item) error { return until(ctx) }
					networkOf(client).budget.tenths.Store(0) // no second try
					ended := make(chan error, 1)
					go func() { ended <- call(t.Context(), client) }()
					testwait.Until(t, entered.Load)
					now, cancel := context.WithCancel(t.Context())
					cancel()
					assert.ErrorIs(t, db.server.Shutdown(now), context.Canceled)
					err := <-ended
					assert.ErrorIs(t, err, ErrUnavailable)
					assert.NotErrorIs(t, err, context.Canceled)
				}
			})
		}
	}
}

// A reset of a call's stream, by the server or by a proxy, is not the caller's doing:
// the call is tried again.
func TestAResetCallIsTriedAgain(t *testing.T) {
	for name, reset := range map[string]error{
		"by a proxy":    status.Error(codes.Canceled, "reset"),
		"with a reason": withReason(t, status.New(codes.Canceled, "the call was cancelled; nothing was done"), kvdpb.ReasonCancelled),
	} {
		t.Run(name, func(t *testing.T) {
			var log tryLog
			var tries atomic.Int32
			db := losing(&log, 0, func(request any) (any, error) {
				if tries.Add(1) == 1 {
					return nil, reset
				}
				return succeed(request)
			}).open(t, WithBatching(Batching{Disabled: true}))
			require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
			assert.EqualValues(t, 2, tries.Load())
		})
	}
}
