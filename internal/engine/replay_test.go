package engine

import (
	"maps"
	"slices"
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

// roomy and tight are memtables that the log of a test fits into, and that it does not.
const roomy, tight = 4 << 20, 128 << 10

// killedWithAFullLog returns what kill -9 leaves of a store whose log is larger than tight,
// and a client that knows what is in it. Records below sync are written at once here.
func killedWithAFullLog(t *testing.T) (*vfs.Mem, *fullLife) {
	t.Helper()
	mem := vfs.NewMem()
	o := fullOptions(mem)
	o.MemtableBytes = roomy
	e, err := Open("data", o)
	require.NoError(t, err)
	l := &fullLife{t: t, e: e, have: map[string]string{}}
	l.puts(0, 700)
	l.dels(30, 10)
	l.puts(700, 300)
	require.Zero(t, l.refused)
	image := mem.KillImage()
	require.NoError(t, e.Close())
	return image, l
}

// twin returns a client that knows the same.
func (l *fullLife) twin(t *testing.T) *fullLife {
	return &fullLife{t: t, have: maps.Clone(l.have)}
}

func tightOptions(fs vfs.FS) Options {
	o := fullOptions(fs)
	o.MemtableBytes = tight
	return o
}

// A replay flushes as it goes, so a store opens with what its memtables may hold, and
// everything is there, also for the next opening, which has less to replay.
func TestReplayFlushesWhatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		image, l := killedWithAFullLog(t)
		for opening := range 2 {
			e, err := Open("data", tightOptions(image))
			require.NoError(t, err)
			require.Equal(t, opening == 0, e.replayFrom > 0)
			require.LessOrEqual(t, e.budget.used(), int64(tight+tight/4))
			l.e = e
			l.check()
			image = image.KillImage()
			require.NoError(t, e.Close())
		}
	})
}

// A disk that is full when the store is opened, so that the log is suspended, or becomes
// full at some operation of the recovery, does not keep a store from opening, although its
// log does not fit into memory. All is readable, and once there is space everything goes on.
func TestADiskFillsDuringAReplay(t *testing.T) {
	t.Parallel()
	killed, before := killedWithAFullLog(t)
	runs, beyond := 0, 0
	for at, filled := int64(1), true; filled; at += fillStep(19) {
		synctest.Test(t, func(t *testing.T) {
			image, l := killed.KillImage(), before.twin(t)
			h := newHog(image, 8<<20, at)
			e, err := Open("data", tightOptions(image))
			require.NoError(t, err, "filled before operation %d", at)
			l.e = e
			filled = h.greedy.Load()
			if e.budget.used() > tight+tight/4 {
				beyond++
			}
			l.check()
			l.puts(1000, 20)
			time.Sleep(3 * housekeepingEvery)
			l.check()
			h.leave()
			l.writable()
			l.puts(1020, 50)
			l.check()
			time.Sleep(3 * housekeepingEvery)
			require.LessOrEqual(t, e.budget.used(), int64(tight+tight/4), "what was kept in memory is flushed")
			require.NoError(t, e.Close())
		})
		runs++
	}
	t.Logf("%d runs, each with a disk that fills at another operation, %d of them kept more in memory than the budget", runs, beyond)
	require.Greater(t, runs, minFills())
	require.Positive(t, beyond, "no run needed more memory than the budget")
}

// A store that cannot be written is served whatever its log needs of memory.
func TestAReadOnlyFileSystemAndALogThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		image, l := killedWithAFullLog(t)
		image.SetReadOnly(true)
		e, err := Open("data", tightOptions(image))
		require.NoError(t, err)
		l.e = e
		l.check()
		require.Greater(t, e.budget.used(), int64(tight))
		_, err = e.Put(t.Context(), []byte("key-000"), []byte("v"), synced)
		require.ErrorIs(t, err, kv.ErrReadOnly)
		require.NoError(t, e.Close())
	})
}

// On a disk with space for a part of the tables alone, the replay gives the log back as far
// as it is flushed, and so stays within the memory.
func TestReplayOnANearlyFullDiskGivesTheLogBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, l := killedWithAFullLog(t)
		gaveBack := 0
		for free := int64(0); free < 2*tight; free += 24 << 10 {
			image := killed.KillImage()
			usage, err := image.Usage("/")
			require.NoError(t, err)
			image.SetCapacity(int64(usage.Total-usage.Free) + free)
			l.e, err = Open("data", tightOptions(image))
			require.NoError(t, err)
			assert.LessOrEqual(t, l.e.budget.used(), int64(tight+tight/4), "%d bytes free", free)
			segments, err := image.List("data/wal")
			require.NoError(t, err)
			if !slices.Contains(segments, "000001.wal") {
				gaveBack++
			}
			l.check()
			again := image.KillImage()
			require.NoError(t, l.e.Close())
			l.e, err = Open("data", tightOptions(again))
			require.NoError(t, err)
			l.check()
			require.NoError(t, l.e.Close())
		}
		require.Greater(t, gaveBack, 5, "the disk is too large for the test")
	})
}

// The power fails at any step of a recovery that gives the log back while it replays.
func TestPowerCutsDuringAReplayOnANearlyFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		killed, l := killedWithAFullLog(t)
		images := imagesOfATightReplay(t, killed, l)
		for i, image := range images {
			image.SetCapacity(1 << 30)
			var err error
			l.e, err = Open("data", tightOptions(image))
			require.NoError(t, err, "image %d", i)
			l.check()
			require.NoError(t, l.e.Close())
		}
		t.Logf("%d images", len(images))
		require.Greater(t, len(images), minFills())
	})
}

// imagesOfATightReplay opens the store on a disk so small that the replay gives the log back, and
// returns what power cuts during that leave. How small that is depends on the order of the flushes.
func imagesOfATightReplay(t *testing.T, killed *vfs.Mem, l *fullLife) (images []*vfs.Mem) {
	every := int(fillStep(7))
	for free := int64(24 << 10); free >= 0; free -= 4 << 10 {
		disk := killed.CrashImage(vfs.KeepAll, nil) // everything is synced, and owed
		usage, err := disk.Usage("/")
		require.NoError(t, err)
		disk.SetCapacity(int64(usage.Total-usage.Free) + free)
		var mu sync.Mutex // flushes run side by side
		images = nil
		disk.SetHook(func(s vfs.Step) {
			if s.N%every == 0 {
				mu.Lock()
				defer mu.Unlock()
				images = append(images, disk.CrashImage(vfs.DropAll, nil))
			}
		})
		l.e, err = Open("data", tightOptions(disk))
		disk.SetHook(nil)
		require.NoError(t, err)
		segments, err := disk.List("data/wal")
		require.NoError(t, err)
		l.check()
		require.NoError(t, l.e.Close())
		if !slices.Contains(segments, "000001.wal") {
			return images
		}
	}
	require.Fail(t, "each disk is too large for the test")
	return nil
}

// TestEveryFaultDuringAReplay fails an operation of a recovery that flushes as it replays, each
// of some in turn. The store opens or does not; the next opening finds everything, and what
// was opened no power cut takes.
func TestEveryFaultDuringAReplay(t *testing.T) {
	t.Parallel()
	killed, before := killedWithAFullLog(t)
	failed, opened := 0, 0
	for at, fired := 0, true; fired; at += int(fillStep(29)) {
		synctest.Test(t, func(t *testing.T) {
			image, l := killed.KillImage(), before.twin(t)
			fsys := faultfs.Wrap(image, faultfs.FailAt(at, syscall.EIO, false))
			e, err := Open("data", tightOptions(fsys))
			fired = fsys.Fired()
			after := image.KillImage()
			if err == nil {
				opened++
				after = image.CrashImage(vfs.DropAll, nil)
				if err := e.Close(); err != nil {
					require.ErrorIs(t, err, syscall.EIO)
				}
			} else {
				failed++
				require.ErrorIs(t, err, syscall.EIO)
			}
			l.e, err = Open("data", tightOptions(after))
			require.NoError(t, err)
			l.check()
			require.NoError(t, l.e.Close())
		})
	}
	t.Logf("%d openings failed, %d did not", failed, opened)
	require.Greater(t, failed, minFills())
}
