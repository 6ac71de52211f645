package wal

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// An idle log whose records are all flushed continues in a small segment; one that is
// small, or has unflushed records, stays as it is.
func TestAnIdleLogShrinks(t *testing.T) {
	o := testOptions(newDisk(t))
	o.SegmentBytes = 4 << 20
	l, _, _ := mustOpen(t, o)
	require.NoError(t, l.Shrink(0))
	require.Equal(t, 1, l.Stats().Segments, "the segment holds no record")
	var last rec
	for i := range 20 {
		last = put(t, l, string(make([]byte, 100<<10)), uint32(i%3+1), synced)
	}
	newest := last.base + kv.SeqNum(last.units) - 1
	awaitQuiet(l) // space may still be reserved
	before := l.Stats().LiveBytes
	require.Greater(t, before, o.SegmentBytes/shrinkAt)
	require.NoError(t, l.Shrink(newest-1))
	require.Equal(t, before, l.Stats().LiveBytes, "one record is not flushed")
	shrink(t, l, newest)
	reclaimAll(t, l, newest, func() {})
	require.Less(t, l.Stats().LiveBytes, int64(4<<10))
	next := put(t, l, "next", 1, synced)
	require.NoError(t, l.Close())

	o.Fresh = false
	l, recs, _ := mustOpen(t, o)
	require.Equal(t, []rec{next}, recs)
	require.NoError(t, l.Close())
}

// A prepared segment that cannot be removed costs its space and nothing else, also once it is
// the lowest.
func TestShrinkThatFailsToRemoveGoesOn(t *testing.T) {
	disk := faultfs.Wrap(newDisk(t), nil)
	o := testOptions(disk)
	o.SegmentBytes = 4 << 20
	l, _, _ := mustOpen(t, o)
	put(t, l, string(make([]byte, 600<<10)), 1, synced)
	last := put(t, l, string(make([]byte, 100<<10)), 1, synced)
	awaitQuiet(l)
	require.NotNil(t, l.mu.prepared) // the log has no other user
	left := l.mu.prepared.name
	disk.SetInjector(faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Remove)))
	require.ErrorIs(t, l.Shrink(last.base), syscall.EIO)
	next := put(t, l, "next", 1, synced)
	for range 3 {
		next = putUntilRotated(t, l, 1<<20)
		reclaimAll(t, l, next.base-1, func() { requireOpens(t, disk, next) })
		requireOpens(t, disk, next)
	}
	require.NoError(t, l.Close())
	requireLast(t, o, next)
	_, err := disk.Stat(left)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// requireOpens checks that the process could be killed now.
func requireOpens(t *testing.T, disk vfs.FS, last rec) {
	t.Helper()
	o := testOptions(diskOf(t, contents(t, disk)))
	report, err := Verify(o.FS, testDir, testStore, func(Record) error { return nil })
	require.NoError(t, err)
	require.NoError(t, report.Problem)
	found, err := Salvage(o.FS, testDir, testStore, func(Record) error { return nil })
	require.NoError(t, err)
	require.Empty(t, found.Gaps)
	_, err = Damages(o.FS, testDir, testStore, func(Record) error { return nil }, func(_ string, err error) { t.Error(err) })
	require.NoError(t, err)
	requireLast(t, o, last)
}

// A log that cannot create another segment, because the disk is full, continues in the
// one that it has.
func TestShrinkOnAFullDiskGoesOn(t *testing.T) {
	disk := faultfs.Wrap(newDisk(t), nil)
	o := testOptions(disk)
	o.SegmentBytes = 4 << 20
	l, _, _ := mustOpen(t, o)
	last := put(t, l, string(make([]byte, 700<<10)), 1, synced)
	awaitQuiet(l)
	for _, fault := range []faultfs.Injector{
		faultfs.FailAt(0, syscall.ENOSPC, false, faultfs.OnKind(faultfs.Create), faultfs.OnName("*.wal")),
		faultfs.FailAt(0, syscall.ENOSPC, false, faultfs.OnKind(faultfs.Write), faultfs.OnName("*.wal")),
		faultfs.FailAt(0, syscall.EDQUOT, false, faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")),
		faultfs.FailAt(0, syscall.ENOSPC, false, faultfs.OnKind(faultfs.SyncDir)),
	} {
		disk.SetInjector(fault)
		require.True(t, vfs.CannotWrite(l.Shrink(last.base)))
		require.NoError(t, l.Err())
		require.True(t, disk.Fired())
		last = put(t, l, "goes on", 1, synced)
	}
	shrink(t, l, last.base)
	next := put(t, l, "next", 1, synced)
	require.NoError(t, l.Close())
	requireLast(t, o, next)
}

// A fast log reserves much ahead. When it is idle it gives that back, whether its records
// are flushed or not.
func TestAnIdleLogGivesReservedSpaceBack(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		disk := newDisk(t)
		used := func() int64 { return usedOf(t, disk) }
		o := testOptions(disk)
		o.SegmentBytes = 64 << 20
		l, _, _ := mustOpen(t, o)
		var last rec
		for range 40 {
			last = put(t, l, string(make([]byte, 1<<20)), 1, kv.DurabilityBuffered)
		}
		require.NoError(t, l.WaitSynced(background, l.End()))
		awaitQuiet(l)
		require.Greater(t, used(), int64(50<<20), "the test needs a log that reserves ahead")
		limit := int64(42 << 20)
		if flushed {
			limit = 2 << 20
			shrink(t, l, last.base)
			for l.Stats().Segments > 1 { // until the end of the old one is synced
				require.NoError(t, l.WaitSynced(background, l.Written()))
				require.NoError(t, l.Reclaim(last.base))
			}
		} else {
			require.NoError(t, l.Shrink(0))
		}
		require.Less(t, used(), limit+slackBytes)
		before := used()
		require.NoError(t, l.Shrink(0))
		require.Equal(t, before, used(), "there is no more to give back")
		next := put(t, l, string(make([]byte, 3<<20)), 1, synced)
		image := disk.KillImage()
		require.NoError(t, l.Close())
		o.FS = image
		requireLast(t, o, next)
	}
}

// What a killed process reserved beyond the end of its log comes back when the log is opened.
func TestAnOpeningGivesBackWhatAKilledLogReserved(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 64 << 20
	l, _, _ := mustOpen(t, o)
	var last rec
	for range 40 {
		last = put(t, l, string(make([]byte, 1<<20)), 1, kv.DurabilityBuffered)
	}
	require.NoError(t, l.WaitSynced(background, l.End()))
	awaitQuiet(l)
	image := disk.KillImage()
	require.Greater(t, usedOf(t, image), int64(50<<20), "the test needs a log that reserves ahead")
	require.NoError(t, l.Close())

	o.FS, o.Fresh = image, false
	l, recs, _ := mustOpen(t, o)
	require.Equal(t, last, recs[len(recs)-1])
	require.Less(t, usedOf(t, image), int64(42<<20)+slackBytes)
	require.NoError(t, l.Close())
}

func usedOf(t *testing.T, disk vfs.FS) int64 {
	t.Helper()
	usage, err := disk.Usage("/")
	require.NoError(t, err)
	return int64(usage.Total - usage.Free)
}

// requireLast checks that a log that is opened again ends with a record.
func requireLast(t *testing.T, o Options, last rec) {
	t.Helper()
	o.Fresh = false
	l, recs, _ := mustOpen(t, o)
	require.Equal(t, last, recs[len(recs)-1])
	require.NoError(t, l.Close())
}

// putUntilRotated puts records of that many bytes until the log continues in another segment,
// and returns the last one. The log has no other user.
func putUntilRotated(t *testing.T, l *Log, bytes int) (last rec) {
	t.Helper()
	for active := l.mu.active.header.num; l.mu.active.header.num == active; {
		last = put(t, l, string(make([]byte, bytes)), 1, synced)
	}
	return last
}

// reclaimAll reclaims all segments but the active one, each time after before. The end of the
// one before it may have to be synced first.
func reclaimAll(t *testing.T, l *Log, flushed kv.SeqNum, before func()) {
	t.Helper()
	for l.Stats().Segments > 1 {
		before()
		require.NoError(t, l.WaitSynced(t.Context(), l.Written()))
		require.NoError(t, l.Reclaim(flushed))
	}
}

// awaitQuiet returns when no goroutine of the log is at work.
func awaitQuiet(l *Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.preparing || l.mu.syncing || l.mu.writing || l.mu.space.reserving {
		l.mu.changed.Wait()
	}
}

// On a full disk a log gives back the space that it does not need, including what a
// failed reservation has taken, and keeps room for some records.
func TestAFullLogReleasesWhatItDoesNotNeed(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 4 << 20
	l, _, _ := mustOpen(t, o)
	var want []rec
	for range 3 {
		want = append(want, put(t, l, string(make([]byte, 300<<10)), 1, synced))
	}
	awaitQuiet(l)
	usage, err := disk.Usage("/")
	require.NoError(t, err)
	disk.SetCapacity(int64(usage.Total-usage.Free) + 500<<10)
	for err == nil {
		var base kv.SeqNum
		if base, _, err = appendTo(l, make([]byte, 100<<10), 1, synced, make(signal, 1), nil); err == nil {
			want = append(want, rec{base, 1, string(make([]byte, 100<<10))})
			require.NoError(t, l.WaitSynced(background, l.End()))
		}
		awaitQuiet(l)
	}
	require.ErrorIs(t, err, kv.ErrReadOnly)
	usage, err = disk.Usage("/")
	require.NoError(t, err)
	require.Less(t, usage.Free, uint64(64<<10), "the test needs a full disk")
	gave, err := l.Release(false)
	require.NoError(t, err)
	require.True(t, gave)
	after, err := disk.Usage("/")
	require.NoError(t, err)
	require.Greater(t, after.Free, usage.Free)
	gave, err = l.Release(false)
	require.NoError(t, err)
	require.False(t, gave, "there is no more")
	want = append(want, put(t, l, string(make([]byte, 1<<10)), 1, synced))
	image := disk.KillImage()
	require.NoError(t, l.Close())
	for _, fs := range []*vfs.Mem{image, disk} {
		o.FS, o.Fresh = fs, false
		again, recs, _ := mustOpen(t, o)
		require.Equal(t, want, recs)
		_ = again.Close() // it may have no space to be closed in order
	}
}

// However fast records come while a reservation of space is on its way to fail, room for deletes is
// left then.
func TestARefusedReservationLeavesRoomForDeletes(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 4 << 20
	l, _, _ := mustOpen(t, o)
	put(t, l, "first", 1, synced)
	awaitQuiet(l)
	usage, err := disk.Usage("/")
	require.NoError(t, err)
	disk.SetCapacity(int64(usage.Total - usage.Free))
	slow := make(chan struct{})
	disk.SetHook(func(s vfs.Step) {
		if s.Kind == vfs.StepReserve {
			<-slow
		}
	})
	for err == nil {
		_, _, err = l.Append(make([]byte, 1000), 1, buffered, make(signal, 1), nil)
	}
	require.ErrorIs(t, err, ErrNoRoomYet)
	close(slow)
	require.NoError(t, l.AwaitRoom(background))
	require.ErrorIs(t, l.Refused(), syscall.ENOSPC)
	deletes := 0
	for err = nil; err == nil; deletes++ {
		_, _, err = l.Append(make([]byte, 30), 1, buffered, make(signal, 1), nil)
	}
	require.ErrorIs(t, err, kv.ErrReadOnly)
	require.Greater(t, deletes, 200)
	l.Flush()
	require.NoError(t, l.WaitSynced(background, l.End()), "what was admitted is written")
	require.NoError(t, l.Close())
}
