package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// TestAFreshStartSyncsTogether counts the syncs of an opening that wait for each other,
// by the time of a disk on which nothing but a sync takes any.
func TestAFreshStartSyncsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 200 * time.Millisecond
		var syncs atomic.Int64
		slow := faultfs.At(0, true, faultfs.Fault{Delay: func() {
			syncs.Add(1)
			time.Sleep(took)
		}}, faultfs.OnKind(faultfs.Sync, faultfs.SyncDir))
		fsys := faultfs.Wrap(vfs.NewMem(), slow)
		o := small(fsys)
		o.Partitions = 16
		for _, most := range []int{14, 6} { // a new store, and one that is there
			syncs.Store(0)
			begin := time.Now()
			e, err := Open("a/b/c/d/data", o)
			require.NoError(t, err)
			chain := int(time.Since(begin) / took)
			t.Logf("%d syncs, %d of them one after the other", syncs.Load(), chain)
			assert.LessOrEqual(t, chain, most)
			assert.Greater(t, int(syncs.Load()), chain)
			require.NoError(t, e.Close())
		}
	})
}

func TestTogetherReturnsTheFirstErrorWhenAllAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		var calls, running, most atomic.Int64
		err := together(nil, 100, func(i int) error {
			calls.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			switch i {
			case 20:
				time.Sleep(time.Second)
				return first
			case 40:
				return second
			}
			return nil
		})
		require.ErrorIs(t, err, first)
		require.EqualValues(t, 100, calls.Load())
		assert.LessOrEqual(t, most.Load(), int64(togetherLimit))
		assert.Greater(t, most.Load(), int64(1))
	})
}
