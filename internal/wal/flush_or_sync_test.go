package wal

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// TestFlushOrSyncLeavesUnknownDisksToTheLog: while the duration of syncs is unknown, the
// syncing goroutine writes all records that wait for a sync, so a write that hangs does
// not block a caller. Records that do not wait for a sync are written while one runs.
func TestFlushOrSyncLeavesUnknownDisksToTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		fsys := faultfs.Wrap(&syncFS{newDisk(t), g.sync}, nil)
		o := testOptions(fsys)
		o.SegmentBytes = 1 << 20
		l, _, _ := mustOpen(t, o)
		g.close()
		hang := make(chan struct{})
		fsys.SetInjector(faultfs.At(0, false, faultfs.Fault{Delay: func() { <-hang }}, faultfs.OnKind(faultfs.Write)))
		flush := func(level kv.Durability, records int) (Pos, *counter) {
			w := &counter{}
			var pos Pos
			for range records {
				var err error
				_, pos, err = appendTo(l, []byte("payload"), 1, level, w, nil)
				require.NoError(t, err)
			}
			l.FlushOrSync()
			synctest.Wait()
			return pos, w
		}
		first, firstWaker := flush(synced, 3)
		require.Zero(t, l.Written(), "the write hangs")
		close(hang)
		<-g.waiting
		synctest.Wait()
		require.Equal(t, first, l.Written(), "and its sync does")
		require.EqualValues(t, 1, l.Stats().FrameRecords.Count(), "one write for all three")

		held, heldWaker := flush(synced, 2)
		require.Equal(t, first, l.Written(), "it waits for the next sync")
		early, earlyWaker := flush(buffered, 1)
		require.Equal(t, early, l.Written())
		require.Greater(t, early, held)
		require.True(t, earlyWaker.woken())
		require.False(t, firstWaker.woken() || heldWaker.woken())

		g.open()
		synctest.Wait()
		require.GreaterOrEqual(t, l.Synced(), held)
		require.True(t, firstWaker.woken() && heldWaker.woken())
		last, _ := flush(memory, 1)
		require.Equal(t, last, l.Written(), "no caller waits for it, and it is written all the same")
		require.NoError(t, l.Close())
		l.FlushOrSync()
	})
}

// TestFlushOrSyncSyncsWhereSyncsAreQuick: if the log is idle, the caller itself writes and
// syncs, until syncs take long.
func TestFlushOrSyncSyncsWhereSyncsAreQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took atomic.Int64
		l := slowDisk(t, &took)
		flush := func() (pos Pos, held time.Duration, w *counter) {
			w = &counter{}
			for range 3 {
				var err error
				_, pos, err = appendTo(l, []byte("payload"), 1, synced, w, nil)
				require.NoError(t, err)
			}
			begin := time.Now()
			l.FlushOrSync()
			return pos, time.Since(begin), w
		}
		took.Store(int64(time.Millisecond))
		putSynced(t, l)
		synctest.Wait()
		time.Sleep(time.Second) // the log no longer waits for other writers
		pos, held, w := flush()
		require.Equal(t, pos, l.Synced())
		require.Equal(t, time.Millisecond, held)
		require.EqualValues(t, 3, w.works.Load(), "the caller has nothing else to do")

		took.Store(int64(10 * leadTime))
		for n := 0; held > 0; n++ {
			require.Less(t, n, 100, "it learns that syncs take long")
			pos, held, w = flush()
			time.Sleep(time.Second)
		}
		require.Equal(t, pos, l.Synced())
		require.True(t, w.woken())
		require.NoError(t, l.Close())
	})
}

// TestASyncerWakesOthersIfMoreWaits: the goroutine that synced applies what became
// durable itself only if nothing else waits to be synced, and if it is not much.
func TestASyncerWakesOthersIfMoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := testOptions(&syncFS{newDisk(t), g.sync})
		o.SegmentBytes = 1 << 20
		l, _, _ := mustOpen(t, o)
		add := func(units uint32) *counter {
			w := &counter{}
			_, _, err := appendTo(l, []byte("payload"), units, synced, w, nil)
			require.NoError(t, err)
			l.Flush()
			return w
		}
		g.close()
		first := add(1)
		<-g.waiting
		second := add(1)
		g.open()
		synctest.Wait()
		require.EqualValues(t, 1, first.wakes.Load(), "the second record waits for a sync")
		require.EqualValues(t, 1, second.works.Load(), "no record waits")
		large := add(workUnits + 1)
		synctest.Wait()
		require.EqualValues(t, 1, large.wakes.Load(), "it served more than workUnits")
		require.Zero(t, first.works.Load()+second.wakes.Load()+large.works.Load())
		require.NoError(t, l.Close())
	})
}
