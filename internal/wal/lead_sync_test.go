package wal

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// leadSync syncs the log on the caller's goroutine, as on a disk whose syncs are quick,
// and returns once the log is synced up to pos.
func leadSync(l *Log, pos Pos) error {
	l.mu.Lock()
	l.mu.gather.typical = time.Microsecond
	l.mu.Unlock()
	l.FlushOrSync()
	return l.WaitSynced(context.Background(), pos)
}

// addSynced appends a record that its caller will sync.
func addSynced(t testing.TB, l *Log) Pos {
	t.Helper()
	_, pos, err := appendTo(l, []byte("payload"), 1, synced, &counter{}, nil)
	require.NoError(t, err)
	return pos
}

// TestALoneCallerSyncsOnItsOwnGoroutine: the caller wakes the syncing goroutine once, for
// the timer of the idle mark.
func TestALoneCallerSyncsOnItsOwnGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk(t)
		l, _, _ := mustOpen(t, testOptions(disk))
		for i := range 10 {
			pos := addSynced(t, l)
			syncs := l.Stats().Syncs
			require.NoError(t, leadSync(l, pos))
			require.GreaterOrEqual(t, l.Synced(), pos)
			require.Equal(t, syncs+1, l.Stats().Syncs)
			require.False(t, i > 0 && len(l.poke) == 1, "put %d", i)
			require.NoError(t, leadSync(l, pos))
			require.Equal(t, syncs+1, l.Stats().Syncs, "it is synced already")
			synctest.Wait()
		}
		require.ErrorIs(t, leadSync(l, l.Synced()+1), kv.ErrInvalidArgument)
		time.Sleep(3 * DefaultIdleMark)
		synctest.Wait()
		require.Equal(t, 1, marks(t, disk), "the log was idle")
		require.NoError(t, l.Close())
	})
}

// The syncing goroutine writes what a caller of FlushBeside leaves to it, and does not sync it.
func TestFlushBesideLeavesTheWriteToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := mustOpen(t, testOptions(newDisk(t)))
		_, pos, err := appendTo(l, nil, 1, kv.DurabilityMemory, &counter{}, nil)
		require.NoError(t, err)
		syncs := l.Stats().Syncs
		synctest.Wait()
		require.Less(t, l.Written(), pos)
		l.FlushBeside()
		synctest.Wait()
		require.GreaterOrEqual(t, l.Written(), pos)
		require.Equal(t, syncs, l.Stats().Syncs)
		require.NoError(t, l.Close())
	})
}

// TestACallerLeadsOneSync: records appended during a caller's sync are in the next sync,
// for which that caller does not wait.
func TestACallerLeadsOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := testOptions(&syncFS{newDisk(t), g.sync})
		o.idleMark = time.Hour
		o.SegmentBytes = 1 << 20
		l, _, _ := mustOpen(t, o)
		g.close()

		first := make(chan error, 1)
		p1 := addSynced(t, l)
		go func() { first <- leadSync(l, p1) }()
		<-g.waiting
		others := make(chan error, 2)
		for range 2 {
			pos := addSynced(t, l)
			go func() { others <- leadSync(l, pos) }()
		}
		w := &counter{}
		_, p3, err := appendTo(l, []byte("payload"), 1, synced, w, nil)
		require.NoError(t, err)
		l.Flush()
		synctest.Wait()
		require.Empty(t, first)
		require.Empty(t, others)
		require.False(t, w.woken())
		syncs := l.Stats().Syncs

		g.mu.Lock()
		shut := g.shut
		g.shut = make(chan struct{}) // for the next sync
		g.mu.Unlock()
		close(shut)
		require.NoError(t, <-first)
		synctest.Wait()
		require.Equal(t, p1, l.Synced())
		require.Empty(t, others)
		require.False(t, w.woken())
		g.open()
		require.NoError(t, <-others)
		require.NoError(t, <-others)
		synctest.Wait()
		require.True(t, w.woken())
		require.GreaterOrEqual(t, l.Synced(), p3)
		require.Equal(t, syncs+2, l.Stats().Syncs)
		require.NoError(t, l.Close())
	})
}

// TestALeaderWaitsForTheWriteOfAnother: a record that another goroutine is writing is not
// in the caller's sync, and the caller waits for it.
func TestALeaderWaitsForTheWriteOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.Wrap(newDisk(t), nil)
		l, _, _ := mustOpen(t, testOptions(fsys))
		release := make(chan struct{})
		fsys.SetInjector(faultfs.At(0, false, faultfs.Fault{Delay: func() { <-release }}, faultfs.OnKind(faultfs.Write)))
		pos := addSynced(t, l)
		go l.Flush()
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- leadSync(l, pos) }()
		synctest.Wait()
		require.Empty(t, done)
		close(release)
		require.NoError(t, <-done)
		require.GreaterOrEqual(t, l.Synced(), pos)
		require.NoError(t, l.Close())
	})
}

// TestTheSyncOfALeaderFails: the caller whose sync failed and all callers that wait for
// the log get the error, and no second sync is tried.
func TestTheSyncOfALeaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.Wrap(newDisk(t), nil)
		l, _, _ := mustOpen(t, testOptions(fsys))
		release := make(chan struct{})
		syncs := 0
		fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind != faultfs.Sync || op.Name != segmentName(testDir, 1) {
				return faultfs.Fault{}
			}
			if syncs++; syncs > 1 {
				return faultfs.Fault{} // as on Linux: the failed pages count as clean
			}
			<-release
			return faultfs.Fault{Err: syscall.EIO, DropDirty: true}
		}))
		results := make(chan error, 3)
		w := &counter{}
		for range 3 {
			pos := addSynced(t, l)
			go func() { results <- leadSync(l, pos) }()
			synctest.Wait()
		}
		_, _, err := appendTo(l, []byte("payload"), 1, synced, w, nil)
		require.NoError(t, err)
		l.Flush()
		close(release)
		for range 3 {
			err := <-results
			assert.ErrorIs(t, err, syscall.EIO)
			assert.ErrorIs(t, err, kv.ErrFailed)
		}
		synctest.Wait()
		assert.True(t, w.woken())
		assert.Zero(t, l.Synced())
		require.ErrorIs(t, leadSync(l, 1), kv.ErrFailed)
		require.ErrorIs(t, l.Close(), syscall.EIO)
		assert.Equal(t, 1, syncs, "a file was synced after its sync had failed")
	})
}

// TestCloseWaitsForALeader: Close returns after the syncs of callers, and syncs the
// records that wait.
func TestCloseWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := testOptions(&syncFS{newDisk(t), g.sync})
		l, _, _ := mustOpen(t, o)
		g.close()
		results := make(chan error, 3)
		for range 2 {
			pos := addSynced(t, l)
			go func() { results <- leadSync(l, pos) }()
			synctest.Wait()
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		require.Empty(t, results)
		go func() { results <- leadSync(l, 1) }() // asks for a log that is being closed
		synctest.Wait()
		g.open()
		require.NoError(t, <-closed)
		for range 3 {
			require.NoError(t, <-results)
		}
		o.Fresh = false
		l, recs, r := mustOpen(t, o)
		require.Len(t, recs, 2)
		require.True(t, r.Clean)
		require.NoError(t, l.Close())
	})
}
