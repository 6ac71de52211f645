package wal

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// life runs a log on a disk where any operation may fail, up to the first error.
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
		base, pos, err := l.Append([]byte(body), 1, level, waker, nil)
		if err != nil {
			return err
		}
		w.appended = append(w.appended, rec{base, 1, body})
		if i%6 == 2 {
			if err := l.SyncTo(pos); err != nil {
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

// TestEveryFault fails operation 0, 1, 2, ... of a life: that of a new log, and
// that of one which must be recovered. Whatever fails, what was acknowledged is
// on the disk.
func TestEveryFault(t *testing.T) {
	faults := map[string]faultfs.Fault{
		"EIO":                 {Err: syscall.EIO},
		"ENOSPC, short write": {Err: syscall.ENOSPC, Short: 70},
		"EMFILE":              {Err: syscall.EMFILE},
		"EIO, pages dropped":  {Err: syscall.EIO, DropDirty: true},
	}
	for name, fault := range faults {
		for _, sticky := range []bool{false, true} {
			for _, fresh := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ops := 0
					for i := 0; ; i++ {
						if !oneFault(t, i, sticky, fresh, fault) {
							break
						}
						ops++
					}
					require.Greater(t, ops, 40)
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
	o.SegmentBytes, o.IdleMark = 600, time.Hour
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

func TestFullDisk(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.IdleMark = time.Hour
	l, _, _ := mustOpen(t, o)
	usage, err := disk.Usage("/")
	require.NoError(t, err)
	disk.SetCapacity(int64(usage.Total-usage.Free) + 10<<10)
	var acked []rec
	for {
		w := make(signal, 1)
		base, pos, err := l.Append(make([]byte, 500), 1, synced, w, nil)
		if err != nil {
			break
		}
		l.Flush()
		for l.Err() == nil && l.Synced() < pos {
			<-w
		}
		if l.Synced() >= pos {
			acked = append(acked, rec{base, 1, string(make([]byte, 500))})
		}
	}
	require.ErrorIs(t, l.Err(), syscall.ENOSPC)
	require.ErrorIs(t, l.Close(), syscall.ENOSPC)
	require.NotEmpty(t, acked)

	disk.SetCapacity(1 << 30)
	o.Fresh = false
	l, recs, _ := mustOpen(t, o)
	require.GreaterOrEqual(t, len(recs), len(acked))
	require.Equal(t, acked, recs[:len(acked)])
	require.NoError(t, l.Close())
}
