package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A write that the log itself refuses is told how much is free and how much is needed, and
// the reason for being read-only is the present one.
func TestARefusalSaysHowMuchIsFreeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		e := open(t, fullOptions(mem))
		put(t, e, "key", "value", synced)
		h := newHog(mem, 8<<20, 0)
		h.greedy.Store(true)
		var err error
		for err == nil { // until the log has no room
			_, err = e.Delete(t.Context(), []byte("key"), synced)
		}
		require.ErrorIs(t, err, kv.ErrReadOnly)
		require.NotErrorIs(t, err, kv.ErrUncertain)
		why, ok := errors.AsType[*kv.ReadOnlyError](err)
		require.True(t, ok, "no figures in: %v", err)
		require.Equal(t, fullDisk, why.Reason)
		require.GreaterOrEqual(t, why.Resume, e.opts.LowDiskBytes)
		require.Contains(t, err.Error(), "writes resume at")

		time.Sleep(3 * housekeepingEvery)
		require.ErrorAs(t, e.ReadOnly(), &why)
		require.Equal(t, fullDisk, why.Reason)

		// Another process gives back less than what the store wants.
		h.gone.Store(true)
		h.greedy.Store(false)
		usage, err := mem.Usage("/")
		require.NoError(t, err)
		mem.SetCapacity(int64(usage.Total + e.opts.LowDiskBytes*3/2))
		time.Sleep(3 * housekeepingEvery)
		require.ErrorAs(t, e.ReadOnly(), &why)
		require.Equal(t, lowDisk, why.Reason)
		h.leave()
	})
}
