package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A reader whose lease has ended gets an error, not what a later snapshot sees, although
// nothing was written in between: the clock has advanced, and keys have expired.
func TestNoLaterLeaseRevivesOneThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTestTime()
		o := small(vfs.NewMem())
		o.time = tt.source()
		e := open(t, o)
		putFor(t, e, "a", "v", time.Second, kv.DurabilityMemory)
		old := begin(t, e, time.Second)
		requireAt(t, e, old, "a", "v")
		scan, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{At: old.Version})
		require.NoError(t, err)
		time.Sleep(time.Second)
		tt.pass(time.Second)
		later := begin(t, e, time.Minute)
		_, err = getAt(e, later.Version, "a")
		require.ErrorIs(t, err, kv.ErrNotFound)
		_, err = getAt(e, old.Version, "a")
		require.ErrorIs(t, err, kv.ErrVersionGone)
		require.False(t, scan.Next())
		require.ErrorIs(t, scan.Err(), kv.ErrVersionGone)
		require.NoError(t, scan.Close())
	})
}
