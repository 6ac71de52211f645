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

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
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

// The limits of a server may be below the frames of a client. A frame that the server refuses for its
// size was not performed, nor was any that it has not answered: the error is definite, and says how to
// make smaller frames. What the server had begun is answered.
func TestAFrameThatIsTooLargeForTheServerIsRefusedAsThat(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		limits := kv.Limits{KeyBytes: 64, ValueBytes: 1 << 10, BatchOps: 16, BatchBytes: 4 << 10}
		const size = 100 << 10
		require.Less(t, service.MessageBytes(limits), size)
		store := servicetest.New(limits)
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		var hold atomic.Bool
		store.OnWrite = func(ctx context.Context, _ []*kv.Write) error {
			if hold.Swap(false) {
				entered <- struct{}{}
				<-leave
			}
			return nil
		}
		db := serve(t, store, service.Options{}).open(t, append(opts, WithConns(1), WithBatching(Batching{MaxOps: 512, MaxBytes: 128 << 10}))...)
		key, large := []byte("k"), make([]byte, size)
		put := func(name string) { require.NoError(t, db.Put(t.Context(), []byte(name), nil), name) }
		put("connected")
		for name, write := range map[string]func() error{
			"put":       func() error { return db.Put(t.Context(), key, large) },
			"put item":  func() error { _, err := db.PutItem(t.Context(), key, large, ReturnPrevious()); return err },
			"condition": func() error { return db.Put(t.Context(), key, nil, IfValue(large)) },
			"apply":     func() error { _, err := db.Apply(t.Context(), new(Batch).Put(key, large)); return err },
			"execute": func() error {
				_, err := db.Execute(t.Context(), Execution{Then: new(Batch).Put(key, large)})
				return err
			},
			"update": func() error {
				return db.Update(t.Context(), func(tx *Txn) error { return tx.Put(t.Context(), key, large) })
			},
			"pipeline": func() error {
				p := db.Pipeline()
				p.Put(key, large)
				return p.Do(t.Context())
			},
			"beside another": func() error {
				hold.Store(true)
				other := make(chan error, 1)
				go func() { other <- db.Put(t.Context(), []byte("held"), nil) }()
				<-entered
				refused := make(chan error, 1)
				go func() { refused <- db.Put(t.Context(), key, large, Durable(Memory)) }()
				close(leave)
				assert.NoError(t, <-other, "the server had begun with it")
				return <-refused
			},
		} {
			err := write()
			require.ErrorIs(t, err, ErrTooLarge, name)
			require.NotErrorIs(t, err, ErrUncertain, name)
			put(name) // on another connection
		}
		require.ErrorContains(t, db.Put(t.Context(), key, large), "WithBatching makes smaller frames")
		_, err := db.Get(t.Context(), key)
		require.ErrorIs(t, err, ErrNotFound)
	})
}
