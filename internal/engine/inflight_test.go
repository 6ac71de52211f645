package engine

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// wide returns a batch of a little less than so many bytes over all partitions.
func wide(e *Engine, bytes int64) *kv.WriteBatch {
	b := new(kv.WriteBatch)
	value := strings.Repeat("v", int(bytes)/len(e.partitions)-100)
	for partition := range e.partitions {
		b.Put([]byte(keysIn(e, partition, 1)[0]), []byte(value))
	}
	return b
}

func (f *inflight) inUse() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.used
}

// While the disk hangs, batches over several partitions pile up to the bound and
// no further, whether or not their callers still wait.
func TestBatchesOverPartitionsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		o := small(disk)
		o.MemtableBytes, o.SegmentBytes = 64<<20, 64<<20 // a new segment would wait for the disk
		e := open(t, o)
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		const callers, fit = 20, 4
		size := e.across.limit / fit

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := make(chan error, callers)
		for range callers {
			go func() {
				_, err := e.Apply(ctx, wide(e, size), synced)
				answers <- err
			}()
		}
		for range callers - fit {
			require.ErrorIs(t, <-answers, kv.ErrOverloaded)
		}
		synctest.Wait()
		require.Empty(t, answers, "the others are in the log")

		cancel()
		for range fit {
			require.ErrorIs(t, <-answers, kv.ErrUncertain)
		}
		_, err := e.Apply(t.Context(), wide(e, size), synced)
		require.ErrorIs(t, err, kv.ErrOverloaded, "callers that gave up made no room")

		time.AfterFunc(patience/2, g.open)
		_, err = e.Apply(t.Context(), wide(e, size), synced)
		require.NoError(t, err)
		_, err = e.Apply(t.Context(), wide(e, 2*e.across.limit), synced)
		require.NoError(t, err, "larger than the bound, but alone")
		synctest.Wait()
		assert.Zero(t, e.across.inUse())
	})
}

// A batch that failed makes room like one that did not.
func TestFailedBatchesOverPartitionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e, err := Open("data", small(disk))
		require.NoError(t, err)
		disk.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")))
		_, err = e.Apply(t.Context(), wide(e, 1<<10), synced)
		require.ErrorIs(t, err, kv.ErrUncertain)
		synctest.Wait()
		assert.Zero(t, e.across.inUse())
		require.ErrorIs(t, e.Close(), kv.ErrFailed)
	})
}

func TestInflightServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(10, "test")
		require.NoError(t, f.take(t.Context(), 6))
		var mu sync.Mutex
		var order []int64
		enter := func(ctx context.Context, bytes int64) <-chan error {
			done := make(chan error, 1)
			go func() {
				err := f.take(ctx, bytes)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					order = append(order, bytes)
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		large := enter(ctx, 100)
		small := enter(t.Context(), 3)
		assert.Empty(t, small, "it fits, but is not first in line")
		cancel()
		require.ErrorIs(t, <-large, context.Canceled)
		require.NoError(t, <-small)

		large = enter(t.Context(), 200)
		small = enter(t.Context(), 1)
		f.release(6)
		synctest.Wait()
		assert.Empty(t, large, "only alone")
		f.release(3)
		require.NoError(t, <-large)
		synctest.Wait()
		assert.Empty(t, small)
		f.release(200)
		require.NoError(t, <-small)
		assert.Equal(t, []int64{3, 200, 1}, order)
		assert.EqualValues(t, 1, f.inUse())
	})
}
