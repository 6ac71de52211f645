package memory

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ kv.Memory = (*Account)(nil)

// Large pieces leave a quarter to small ones.
func TestSmallPiecesHaveAQuarterOfTheirOwn(t *testing.T) {
	const piece = 1 << 20
	a := New(12 * piece)
	for range 9 {
		require.True(t, a.Take(piece, 0))
	}
	assert.False(t, a.Take(piece, 0), "three quarters are taken")
	small := int64(0)
	for a.Take(SmallBytes, 0) {
		small += SmallBytes
	}
	assert.EqualValues(t, 3*piece, small)
	assert.EqualValues(t, a.Limit(), a.Used())
	assert.EqualValues(t, 2, a.Refused())
	a.Give(small)
	a.Give(9 * piece)
	assert.Zero(t, a.Used())
}

// Bytes that only the garbage collector can give back come back to an account that is full.
func TestAFullAccountCollects(t *testing.T) {
	a := New(1 << 20)
	for a.Take(SmallBytes, 0) {
		runtime.AddCleanup(new([16]byte), a.Cancel, SmallBytes)
	}
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	if a.Wait(t.Context(), SmallBytes, 0) == nil {
		a.Cancel(SmallBytes) // it was served by the collection that it had run
	}
	require.Greater(t, forced(), before)
	testwait.Until(t, func() bool { return a.Used() == 0 })
}

// What exceeds the bound is served alone, in one piece or in several, and only one at a
// time.
func TestTheLargestRequestIsServedAlone(t *testing.T) {
	a := New(100 << 20)
	const largest = 300 << 20
	require.True(t, a.Take(25<<20, 0), "others hold a quarter")
	require.True(t, a.Take(largest, 0))
	assert.False(t, a.Take(largest, 0))
	assert.False(t, a.Take(largest, largest/2), "who holds a part of it already has no right to the rest while another is served alone")
	assert.False(t, a.Take(1, 0))
	a.Give(largest)

	held := int64(0)
	for held < largest {
		require.True(t, a.Take(1<<20, held))
		held += 1 << 20
	}
	a.Give(held)
	require.True(t, a.Take(1<<20, 0))
	assert.False(t, a.Take(largest, 0), "others hold more than a quarter")
}

// Those that wait are served in their order, and what is small goes past them.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 1 << 20
		a := New(4 * piece)
		require.True(t, a.Take(3*piece, 0))
		var order []int
		var mu sync.Mutex
		for i := range 3 {
			go func() {
				assert.NoError(t, a.Wait(t.Context(), 3*piece, 0))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				a.Give(3 * piece)
			}()
			synctest.Wait()
		}
		assert.False(t, a.Take(piece, 0), "a large one stands in line")
		assert.True(t, a.Take(1000, 0))
		a.Give(1000)
		a.Give(3 * piece)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2}, order)
		assert.Zero(t, a.Used())
	})
}

// A waiter that gets no bytes is refused, and the next waiter is first in the queue.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 1 << 20
		a := New(4 * piece)
		require.True(t, a.Take(2*piece, 0))
		begin := time.Now()
		err := a.Wait(t.Context(), 3*piece, 0)
		require.ErrorIs(t, err, kv.ErrOverloaded)
		assert.Equal(t, Patience, time.Since(begin))

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- a.Wait(ctx, 3*piece, 0) }()
		synctest.Wait()
		go func() { ended <- a.Wait(t.Context(), piece, 0) }() // not small
		synctest.Wait()
		assert.Empty(t, ended, "the second has room but stands behind the first")
		cancel()
		synctest.Wait()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, <-ended)
		a.Give(3 * piece)
		assert.Zero(t, a.Used())
	})
}

func TestConcurrentUseComesOut(t *testing.T) {
	a := New(1 << 20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				bytes := int64(1 + (n*7919+i)%200_000)
				if n%3 == 0 {
					assert.NoError(t, a.Wait(context.Background(), bytes, 0))
				} else if !a.Take(bytes, 0) {
					continue
				}
				assert.LessOrEqual(t, a.Used(), a.Limit())
				a.Give(bytes)
			}
		})
	}
	all.Wait()
	assert.Zero(t, a.Used())
}

// Large pieces that were given back count until they are collected: together with what is taken they
// exceed the limit by a quarter of it at most, when a large piece is about to be allocated. What was
// not allocated does not count.
func TestGarbageCountsUntilItIsCollected(t *testing.T) {
	const piece = 1 << 20
	a := New(32 * piece)
	collections := func() uint64 {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return uint64(s.NumForcedGC)
	}
	before := collections()
	for range 1000 {
		require.True(t, a.Take(piece, 0))
		a.Cancel(piece)
	}
	assert.Zero(t, a.garbage.bytes.Load())
	for range 1000 {
		require.True(t, a.Take(SmallBytes, 0))
		a.Give(SmallBytes)
	}
	assert.Equal(t, before, collections())
	for range 1000 {
		require.True(t, a.Take(piece, 0))
		assert.LessOrEqual(t, a.Used()+a.garbage.bytes.Load(), int64(40*piece))
		a.Give(piece)
	}
	// As many by itself as it needs, or fewer if the collector has run meanwhile.
	assert.LessOrEqual(t, collections()-before, uint64(1000/40+1))
	assert.Positive(t, a.garbage.bytes.Load())
	runtime.GC()
	runtime.GC()
	a.garbage.age()
	assert.Zero(t, a.garbage.bytes.Load(), "collections that the account did not ask for count, too")
}

// What is reserved for a request that waited is collected for as well.
func TestAWaiterCollectsBeforeItAllocates(t *testing.T) {
	const piece = 1 << 20
	a := New(32 * piece)
	require.True(t, a.Take(24*piece, 0))
	served := make(chan error)
	go func() { served <- a.Wait(t.Context(), 24*piece, 0) }()
	a.Give(24 * piece)
	require.NoError(t, <-served)
	assert.LessOrEqual(t, a.Used()+a.garbage.bytes.Load(), int64(40*piece))
	a.Give(24 * piece)
}
