package wal

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// life uses a log on a disk where any operation may fail, up to the first error.
func life(o Options, w *faultLife) error {
	l, recs, _, err := openAll(o)
	if err != nil {
		return err
	}
	w.opened = true
	w.recovered = recs
	defer func() { w.closeErr = l.Close() }()
	for i := range 8 {
		level := []kv.Durability{synced, buffered, synced}[i%3]
		waker := make(signal, 1)
		body := payload(i)
		if i%2 == 1 {
			body += string(make([]byte, 300))
		}
		base, pos, err := appendTo(l, []byte(body), 1, level, waker, nil)
		if err != nil {
			return err
		}
		w.appended = append(w.appended, rec{base, 1, body})
		if i%6 == 2 {
			if err := leadSync(l, pos); err != nil {
				return err
			}
		}
		l.Flush()
		for !reached(l, pos, level) {
			if err := l.Err(); err != nil {
				return err
			}
			<-waker
		}
		if level == synced {
			w.durable = len(w.appended)
		}
		if i == 5 {
			if err := l.Reclaim(w.appended[2].base); err != nil {
				w.reclaimErr = err
			}
			w.flushed = w.appended[2].base
		}
	}
	return nil
}

type faultLife struct {
	opened     bool
	recovered  []rec
	appended   []rec
	durable    int
	flushed    kv.SeqNum
	closeErr   error
	reclaimErr error
}

// TestEveryFault fails operation 0, 1, 2, ... of the life of a new log, and of one that
// must be recovered. Whatever fails, acknowledged records are on the disk. One kind of fault
// strikes every third operation, or every ninth if the test is reduced; together the kinds
// strike each.
func TestEveryFault(t *testing.T) {
	stride := 3
	if testsize.Reduced() {
		stride = 9
	}
	faults := map[string]faultfs.Fault{
		"EIO":                 {Err: syscall.EIO},
		"ENOSPC, short write": {Err: syscall.ENOSPC, Short: 70},
		"EMFILE":              {Err: syscall.EMFILE},
		"EIO, pages dropped":  {Err: syscall.EIO, DropDirty: true},
	}
	kinds := 0
	for name, fault := range faults {
		for _, sticky := range []bool{false, true} {
			for _, fresh := range []bool{true, false} {
				first := kinds % stride
				kinds++
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					i := first
					for oneFault(t, i, sticky, fresh, fault) {
						i += stride
					}
					require.Greater(t, i, 40)
				})
			}
		}
	}
}

func oneFault(t *testing.T, i int, sticky, fresh bool, fault faultfs.Fault) (fired bool) {
	disk := newDisk(t)
	old := faultLife{}
	if !fresh {
		o := faultOptions(disk)
		require.NoError(t, life(o, &old))
		require.NoError(t, old.closeErr)
		nums, err := listSegments(disk, testDir)
		require.NoError(t, err)
		cutClose(t, disk, segmentName(testDir, nums[len(nums)-1]))
	}
	fsys := faultfs.Wrap(disk, faultfs.At(i, sticky, fault))
	o := faultOptions(fsys)
	o.Fresh = fresh
	w := &faultLife{}
	err := life(o, w)
	if !fsys.Fired() {
		require.NoError(t, err)
		require.NoError(t, w.closeErr)
	}
	if w.opened && err == nil && w.closeErr == nil && w.reclaimErr == nil {
		w.durable = len(w.appended)
	}
	all := append(append([]rec(nil), old.appended...), w.appended...)
	p := promises{appended: all, flushed: max(old.flushed, w.flushed)}
	must := len(old.appended)
	if w.opened {
		must += w.durable
	}
	if len(w.appended) > 0 {
		p.seen = w.appended[len(w.appended)-1].base
	}
	for _, policy := range []vfs.CrashPolicy{vfs.DropAll, vfs.KeepAll} {
		o := faultOptions(disk.CrashImage(policy, nil))
		o.Fresh = fresh && !w.opened
		l, recs, r := mustOpen(t, o)
		p.check(t, recs, must)
		require.Greater(t, r.NextSeq, p.seen)
		require.NoError(t, l.Close())
		if t.Failed() {
			t.Fatalf("operation %d, %v", i, policy)
		}
	}
	return fsys.Fired()
}

func faultOptions(fsys vfs.FS) Options {
	o := testOptions(fsys)
	o.SegmentBytes, o.idleMark = 600, time.Hour
	return o
}

// cutClose turns a log that was closed in order into one that was killed.
func cutClose(t *testing.T, disk *vfs.Mem, name string) {
	f, err := disk.OpenReadWrite(name)
	require.NoError(t, err)
	b := make([]byte, segmentHeaderBytes)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	h, err := decodeSegmentHeader(name, b)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(h.closed-frameHeaderBytes))
	h.closed = 0
	_, err = f.WriteAt(h.encode(), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// TestFullDisk fills the disk at once, between two records, for every number of records
// before that. Append refuses what does not fit before it has a number, the owner is
// told, everything admitted is written, and the log continues once there is space.
func TestFullDisk(t *testing.T) {
	for after := 0; after < 60; after += 1 + after/4 {
		disk := newDisk(t)
		o := testOptions(disk)
		o.idleMark, o.SegmentBytes = time.Hour, 8<<10
		told := make(chan error, 1000)
		o.NoSpace = func(err error) { told <- err }
		l, _, _ := mustOpen(t, o)
		fill := func() {
			usage, err := disk.Usage("/")
			require.NoError(t, err)
			disk.SetCapacity(int64(usage.Total - usage.Free))
		}
		var acked []rec
		add := func(level kv.Durability) error {
			w := make(signal, 1)
			base, pos, err := appendTo(l, make([]byte, 500), 1, level, w, nil)
			if err != nil {
				return err
			}
			l.Flush()
			require.NoError(t, l.WaitSynced(t.Context(), pos), "what was admitted is written")
			acked = append(acked, rec{base, 1, string(make([]byte, 500))})
			return nil
		}
		levels := []kv.Durability{synced, buffered, memory}
		for i := range after {
			require.NoError(t, add(levels[i%3]))
		}
		fill()
		err := error(nil)
		for i := 0; err == nil; i++ {
			require.Less(t, i, 10_000, "the disk is full")
			err = add(levels[i%3])
		}
		require.ErrorIs(t, err, kv.ErrReadOnly)
		require.ErrorIs(t, err, syscall.ENOSPC)
		<-told
		require.NoError(t, l.Err())
		require.Error(t, l.Reserve(), "nothing has changed")

		disk.SetCapacity(1 << 30)
		require.NoError(t, l.Reserve())
		for i := range 40 {
			require.NoError(t, add(levels[i%3]))
		}
		require.NoError(t, l.Close())
		o.Fresh = false
		l, recs, _ := mustOpen(t, o)
		require.Equal(t, acked, recs)
		require.NoError(t, l.Close())
	}
}

// TestAFullDiskClosesInOrder: neither the marks nor the frames that end a log need space
// that is not reserved.
func TestAFullDiskClosesInOrder(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	l, _, _ := mustOpen(t, o)
	want := []rec{put(t, l, "a", 1, synced)}
	usage, err := disk.Usage("/")
	require.NoError(t, err)
	disk.SetCapacity(int64(usage.Total - usage.Free))
	require.NoError(t, l.Close())
	disk.SetCapacity(1 << 30)
	o.Fresh = false
	l, recs, recovery := mustOpen(t, o)
	require.Equal(t, want, recs)
	require.True(t, recovery.Clean)
	require.NoError(t, l.Close())
}

// TestAnOpeningThatFailsCanBeTriedAgain: whichever operation fails while a log is opened,
// whether it was closed in order or not, the next process finds the same log.
func TestAnOpeningThatFailsCanBeTriedAgain(t *testing.T) {
	for _, inOrder := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed in order %v", inOrder), func(t *testing.T) {
			disk := newDisk(t)
			o := testOptions(disk)
			l, _, _ := mustOpen(t, o)
			var want []rec
			for i := range 5 {
				want = append(want, put(t, l, payload(i), 1, synced))
			}
			before := disk.KillImage()
			require.NoError(t, l.Close())
			if inOrder {
				before = disk.KillImage()
			}
			o.Fresh = false
			for i := 0; ; i++ {
				fault := faultfs.FailAt(i, syscall.EIO, false)
				mem := before.KillImage()
				o.FS = faultfs.Wrap(mem, fault)
				l, _, err := Open(o, func(Record) error { return nil })
				if err == nil {
					err = l.Close()
				}
				o.FS = mem.KillImage()
				again, recs, _ := mustOpen(t, o)
				require.Equal(t, want, recs, "after fault %d: %v", i, err)
				require.NoError(t, again.Close())
				if !fault.Fired() {
					require.Greater(t, i, 10)
					break
				}
			}
		})
	}
}
