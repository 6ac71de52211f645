package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A write in progress when the store finds that its log was moved is not acknowledged,
// although its sync succeeds.
func TestNothingIsAcknowledgedByAStoreThatWasTakenAway(t *testing.T) {
	for _, name := range []string{"data/wal/000001.wal", "data/STORE"} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			fsys := faultfs.Wrap(mem, nil)
			e := open(t, small(fsys))
			require.NoError(t, e.clock.use())
			put(t, e, "a", "1", synced)
			before, err := mem.List("data")
			require.NoError(t, err)

			release := make(chan struct{})
			isSync, isLog := faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")
			fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if isSync(op) && isLog(op) {
					return faultfs.Fault{Delay: func() { <-release }}
				}
				return faultfs.Fault{}
			}))
			written := make(chan error, 1)
			go func() {
				_, err := e.Put(t.Context(), []byte("b"), []byte("2"), synced)
				written <- err
			}()
			synctest.Wait()
			require.NoError(t, mem.Remove(name))
			time.Sleep(2 * housekeepingEvery)
			<-e.Failed()
			require.ErrorIs(t, e.Err(), kv.ErrFailed)
			require.ErrorIs(t, e.Err(), vfs.ErrMisplaced)
			assert.ErrorContains(t, e.Err(), name)
			close(release)
			require.ErrorIs(t, <-written, kv.ErrUncertain)
			_, err = e.Put(t.Context(), []byte("c"), []byte("3"), synced)
			require.ErrorIs(t, err, kv.ErrFailed)

			require.NoError(t, mem.Remove("data/CLOCK"), "to see whether it comes back")
			require.ErrorIs(t, e.Close(), vfs.ErrMisplaced)
			after, err := mem.List("data")
			require.NoError(t, err)
			assert.NotContains(t, after, "CLOCK", "before there was %v", before)
		})
	}
}
