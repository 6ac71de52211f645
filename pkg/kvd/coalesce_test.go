package kvd

import (
	"context"
	"errors"
	"fmt"
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
)

// Concurrent callers share frames by themselves.
func TestConcurrentCallersShareFrames(t *testing.T) { everyTransport(t, concurrentCallersShareFrames) }

func concurrentCallersShareFrames(t *testing.T, opts ...Option) {
	store := servicetest.New(kv.DefaultLimits)
	// As if each write cost an fsync: what comes meanwhile makes the next frame.
	var rounds sync.Mutex
	store.OnWrite = func(context.Context, []*kv.Write) error {
		rounds.Lock()
		defer rounds.Unlock()
		time.Sleep(200 * time.Microsecond)
		return nil
	}
	c := serve(t, store, service.Options{})
	db := c.open(t, append(opts, WithConns(1))...)
	const callers, each = 16, 100
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				key := fmt.Appendf(nil, "%d/%d", caller, i)
				assert.NoError(t, db.Put(context.Background(), key, key))
			}
		})
	}
	all.Wait()
	stats := c.server.Stats()
	assert.EqualValues(t, callers*each, stats.Frames.Sum)
	assert.Less(t, stats.Frames.Count(), uint64(callers*each/3), "at least three operations in a frame")
	assert.Equal(t, callers*each, store.Len())
}

// A call travels while others are performed; a synced write waits for those before it, as the disk
// would sync the two separately.
func TestACallDoesNotWaitForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := servicetest.New(kv.DefaultLimits)
		entered, leave := make(chan struct{}, 9), make(chan struct{})
		store.OnApply = func(context.Context, *kv.WriteBatch) error {
			entered <- struct{}{}
			<-leave
			return nil
		}
		db := serve(t, store, service.Options{}).open(t, WithConns(1))
		require.NoError(t, db.Ping(t.Context()))
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				tx, err := db.Begin()
				assert.NoError(t, err)
				assert.NoError(t, tx.Put(t.Context(), []byte{byte('a' + i)}, nil))
				_, err = tx.Commit(t.Context(), Durable(Sync))
				assert.NoError(t, err)
			})
			synctest.Wait()
			assert.Len(t, entered, i+1)
		}
		close(leave)
		all.Wait()
	})
}

// A lone caller's operations are frames of one: nothing waits for company.
func TestALoneCallerIsNotBatched(t *testing.T) { everyTransport(t, aLoneCallerIsNotBatched) }

func aLoneCallerIsNotBatched(t *testing.T, opts ...Option) {
	c := serve(t, nil, service.Options{})
	db := c.open(t, opts...)
	for range 10 {
		require.NoError(t, db.Put(context.Background(), []byte("k"), nil))
	}
	stats := c.server.Stats()
	assert.EqualValues(t, 10, stats.Frames.Count())
	assert.EqualValues(t, 10, stats.Frames.Buckets[0])
}

func TestALargeValueTravelsAlone(t *testing.T) { everyTransport(t, aLargeValueTravelsAlone) }

func aLargeValueTravelsAlone(t *testing.T, opts ...Option) {
	c := serve(t, nil, service.Options{})
	db := c.open(t, opts...)
	ctx := context.Background()
	large := make([]byte, 3<<20)
	require.NoError(t, db.Put(ctx, []byte("large"), large))
	assert.Zero(t, c.server.Stats().Frames.Count())
	require.NoError(t, db.Put(ctx, []byte("small"), large[:64<<10]))
	assert.EqualValues(t, 1, c.server.Stats().Frames.Count())
	value, err := db.Get(ctx, []byte("large"))
	require.NoError(t, err)
	assert.Len(t, value, len(large))
}

// Keys and values may be changed once a call has returned, also by an error.
func TestArgumentsMayBeReused(t *testing.T) { everyTransport(t, argumentsMayBeReused) }

func argumentsMayBeReused(t *testing.T, opts ...Option) {
	db := openMemory(t, opts...)
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			key, value := make([]byte, 8), make([]byte, 8)
			for i := range 200 {
				copy(key, fmt.Sprintf("%02d/%04d", caller, i))
				copy(value, key)
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 0 {
					go cancel()
				}
				err := db.Put(ctx, key, value)
				assert.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
				cancel()
			}
		})
	}
	all.Wait()
	for item, err := range db.Scan(context.Background(), All()) {
		require.NoError(t, err)
		require.Equal(t, item.Key, item.Value)
	}
}

func TestAThousandGoroutines(t *testing.T) { everyTransport(t, aThousandGoroutines) }

func aThousandGoroutines(t *testing.T, opts ...Option) {
	c := serve(t, nil, service.Options{})
	db := c.open(t, opts...)
	ctx := context.Background()
	var all sync.WaitGroup
	var missing atomic.Int64
	for i := range 1000 {
		all.Go(func() {
			key := fmt.Appendf(nil, "key %d", i)
			for n := range 3 {
				value := fmt.Appendf(nil, "value %d of %d", n, i)
				assert.NoError(t, db.Put(ctx, key, value))
				got, err := db.Get(ctx, key)
				assert.NoError(t, err)
				assert.Equal(t, string(value), string(got))
			}
			assert.NoError(t, db.Delete(ctx, key))
			if _, err := db.Get(ctx, key); errors.Is(err, ErrNotFound) {
				missing.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 1000, missing.Load())
	assert.Zero(t, c.store.Len())
}
