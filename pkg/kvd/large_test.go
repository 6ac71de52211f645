package kvd

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
)

// TestWhatIsFarTooLargeIsRefusedAsThat: a value beyond what a message may have is refused
// before the server reads it, so nothing was written. A time to live keeps its
// figure.
func TestWhatIsFarTooLargeIsRefusedAsThat(t *testing.T) {
	db := openMemory(t)
	for _, size := range []int{5 << 20, 9 << 20, 20 << 20, 70 << 20} {
		err := db.Put(t.Context(), []byte("k"), make([]byte, size))
		require.ErrorIs(t, err, ErrTooLarge, "%d bytes", size)
		assert.NotErrorIs(t, err, ErrUncertain, "%d bytes", size)
	}
	err := db.Put(t.Context(), []byte("k"), nil, TTL(math.MaxInt64*time.Nanosecond))
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "9223372036855 ms, limit is 3153600000000")
}

// A key beyond what a message may have is refused, and ends no connection, which others share.
func TestAKeyThatIsFarTooLargeEndsNoConnection(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		c := serve(t, nil, service.Options{})
		var dials atomic.Int32
		db := c.open(t, append(opts, WithConns(1), WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dials.Add(1)
			return c.dialer(ctx, address)
		}))...)
		require.NoError(t, db.Ping(t.Context()))
		require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
		require.NoError(t, db.View(t.Context(), func(*Snapshot) error { return nil }), "it tells the epoch")
		before := dials.Load()
		key, pipeline := make([]byte, 10<<20), db.Pipeline()
		pipeline.Get(key)
		_, err := db.Get(t.Context(), key)
		for call, err := range map[string]error{
			"get": err, "put": db.Put(t.Context(), key, nil), "delete": db.Delete(t.Context(), key),
			"pipeline": pipeline.Do(t.Context()),
			"update": db.Update(t.Context(), func(tx *Txn) error {
				_, err := tx.Get(t.Context(), key)
				return err
			}),
		} {
			assert.ErrorIs(t, err, ErrTooLarge, call)
			assert.NotErrorIs(t, err, ErrUncertain, call)
		}
		assert.Equal(t, before, dials.Load())
	})
}
