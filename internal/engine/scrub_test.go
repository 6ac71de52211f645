package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace/pacetest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// newScrubStore opens a store with every kind of file that does not change by itself: a base, a
// delta, value files, and sealed segments of the log. In a bubble they stay: after a second
// segments that are flushed are reclaimed, and after ten of rest deltas are merged.
func newScrubStore(t testing.TB, o Options) *Engine {
	e := open(t, o)
	write := func(from, to, size int) {
		for i := from; i < to; i++ {
			put(t, e, key(i), strings.Repeat("v", size+i%7), buffered)
		}
	}
	write(0, 600, 40)
	write(300, 400, 300) // kept apart from their keys
	require.NoError(t, e.CompactAll(t.Context()))
	write(50, 55, 40)
	require.NoError(t, e.Flush(t.Context()))
	write(0, 400, 400)
	return e
}

func scrubOptions(fs vfs.FS) Options {
	o := small(fs)
	o.Partitions, o.MemtableBytes = 2, 4<<20
	return o
}

// found scrubs the store and returns what is damaged.
func found(t testing.TB, e *Engine) (all []event.Damage, last ScrubStep) {
	t.Helper()
	err := e.Scrub(t.Context(), 0, func(s ScrubStep) {
		if s.Damage != nil {
			all = append(all, *s.Damage)
		}
		last = s
	})
	require.NoError(t, err)
	return all, last
}

// TestAScrubFindsEveryFlip flips one bit after the other, at random, in the files of a running
// store, in a file of each kind in turn. By default it flips a sample; with KVD_DAMAGE=full a thousand.
func TestAScrubFindsEveryFlip(t *testing.T) { synctest.Test(t, aScrubFindsEveryFlip) }

func aScrubFindsEveryFlip(t *testing.T) {
	disk := vfs.NewMem()
	e := newScrubStore(t, scrubOptions(disk))
	synctest.Wait()
	damages, last := found(t, e)
	require.Empty(t, damages)
	require.Equal(t, last.Total, last.Done)

	flips := 150
	switch {
	case os.Getenv("KVD_DAMAGE") == "full":
		flips = 1000
	case testsize.Reduced():
		flips = 30
	}
	rng := rand.New(rand.NewPCG(18, 3))
	kinds := map[string]int{}
	for n := range flips {
		names := scrubbed(t, e, disk)
		exts := slices.Sorted(maps.Keys(names))
		of := names[exts[n%len(exts)]]
		name := of[rng.IntN(len(of))]
		f, err := disk.OpenReadWrite(name)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		at, b := rng.Int64N(size), []byte{0}
		_, err = f.ReadAt(b, at)
		require.NoError(t, err)
		bit := byte(1) << rng.IntN(8)
		_, err = f.WriteAt([]byte{b[0] ^ bit}, at)
		require.NoError(t, err)

		damages, _ := found(t, e)
		require.NotEmpty(t, damages, "flip %d: bit %d of byte %d of the %d of %s", n, bit, at, size, name)
		for _, d := range damages {
			require.Equal(t, name, path.Join("data", d.File))
			require.NotEmpty(t, d.Reason)
			if d.Kind == kindTable {
				require.NotEmpty(t, d.Last, "the keys of a table are known")
			}
		}
		require.Subset(t, e.Damages(), damages)
		kinds[damages[0].Kind]++

		_, err = f.WriteAt(b, at)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	damages, _ = found(t, e)
	require.Empty(t, damages)
	require.Empty(t, e.Damages(), "files that verify again are whole")
	t.Logf("%d flips: %v", flips, kinds)
	for _, kind := range []string{kindTable, kindValues, kindLog, kindManifest} {
		assert.Positive(t, kinds[kind], kind)
	}
}

// scrubbed returns the files that do not change while the store idles, in which each byte
// counts, by the ends of their names: tables, value files, segments of the log, and the others.
func scrubbed(t testing.TB, e *Engine, disk vfs.FS) map[string][]string {
	names := map[string][]string{}
	active := 0 // the segment with the highest number that has records, and what follows
	for name := range files(t, disk) {
		if path.Ext(name) == ".wal" {
			active = max(active, segmentNumber(t, name))
		}
	}
	for name := range files(t, disk) {
		switch path.Base(name) {
		case "LOCK", "BALLAST", "CLOCK":
			continue
		}
		if path.Ext(name) == ".wal" && segmentNumber(t, name) >= active-1 {
			continue // active, or prepared
		}
		ext := path.Ext(name)
		names[ext] = append(names[ext], name)
	}
	for _, of := range names {
		slices.Sort(of)
	}
	return names
}

func segmentNumber(t testing.TB, name string) (num int) {
	_, err := fmt.Sscanf(path.Base(name), "%d.wal", &num)
	require.NoError(t, err)
	return num
}

// After a crash the log goes on with numbers far above those of its records. The segments that
// were written then are whole, also once the log has left them.
func TestAScrubFindsNothingAfterCrashes(t *testing.T) {
	for name, image := range map[string]func(*vfs.Mem) *vfs.Mem{
		"killed":    (*vfs.Mem).KillImage,
		"power cut": func(m *vfs.Mem) *vfs.Mem { return m.CrashImage(vfs.DropAll, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			for life, crashes := range []bool{true, false, false, true, true, false, false} {
				e, err := Open("data", scrubOptions(disk))
				require.NoError(t, err)
				for range 2 {
					damages, last := found(t, e)
					require.Empty(t, damages, "life %d", life)
					require.Positive(t, last.Total)
					put(t, e, "x", fmt.Sprint(life), kv.WriteOptions{})
				}
				if crashes {
					disk = image(disk)
				}
				require.NoError(t, e.Close())
			}
		})
	}
}

// Damage of one segment hides no other: each is found, and named once. The last segment is one of
// them.
func TestAScrubFindsTheDamageOfEverySegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := scrubOptions(disk)
		e := newScrubStore(t, o)
		synctest.Wait()
		sealed, active := func() ([]wal.SnapshotFile, *wal.SnapshotFile) {
			hold := e.log.Hold()
			defer hold.Release()
			return hold.Segments()
		}()
		require.Greater(t, len(sealed), 3)
		names := []string{active.Name}
		for i := range sealed {
			names = append(names, sealed[i].Name)
		}
		segment := func(i int) string { return path.Join("data/wal", names[i]) }
		for _, damaged := range [][]int{{0}, {1}, {len(names) - 1}, {0, 1, 2}, {1, len(names) - 1}} {
			var want, got []string
			for _, i := range damaged {
				want = append(want, path.Join("wal", names[i]))
				flipByte(t, disk, segment(i), 70) // in the first frame
			}
			damages, _ := found(t, e)
			for _, d := range damages {
				got = append(got, d.File)
			}
			require.ElementsMatch(t, want, got)
			for _, i := range damaged {
				flipByte(t, disk, segment(i), 70)
			}
		}
		flipByte(t, disk, segment(0), 70)
		content := files(t, disk)[segment(1)]
		require.NoError(t, disk.Remove(segment(1)))
		damages, _ := found(t, e)
		require.Len(t, damages, 2, "%v", damages)
		require.Equal(t, []string{path.Join("wal", names[0]), path.Join("wal", names[1])}, []string{damages[0].File, damages[1].File})
		require.NoError(t, vfs.WriteAtomic(disk, segment(1), content))
	})
}

// A file that was removed or cut under the running server is found, although the server has
// it open.
func TestAScrubFindsFilesThatAreGone(t *testing.T) { synctest.Test(t, aScrubFindsFilesThatAreGone) }

func aScrubFindsFilesThatAreGone(t *testing.T) {
	for what, damage := range map[string]func(disk *vfs.Mem, name string) error{
		"removed": func(disk *vfs.Mem, name string) error { return disk.Remove(name) },
		"cut": func(disk *vfs.Mem, name string) error {
			f, err := disk.OpenReadWrite(name)
			return errors.Join(err, f.Truncate(10), f.Close())
		},
	} {
		for _, ext := range []string{".sst", ".val"} {
			disk := vfs.NewMem()
			e := newScrubStore(t, scrubOptions(disk))
			synctest.Wait()
			var name string
			for other := range files(t, disk) {
				if path.Ext(other) == ext {
					name = other
				}
			}
			require.NoError(t, damage(disk, name))
			damages, _ := found(t, e)
			require.Len(t, damages, 1, "%s %s", what, name)
			require.Equal(t, name, path.Join("data", damages[0].File))
		}
	}
}

// What a scrub finds is told once, remembered, and forgotten with the file.
func TestDamageIsToldOnceAndForgottenWithItsFile(t *testing.T) {
	synctest.Test(t, damageIsToldOnceAndForgottenWithItsFile)
}

func damageIsToldOnceAndForgottenWithItsFile(t *testing.T) {
	disk := vfs.NewMem()
	o := scrubOptions(disk)
	var told []event.Damage
	o.Events = &event.Listener{Damaged: func(d event.Damage) { told = append(told, d) }}
	e := newScrubStore(t, o)
	synctest.Wait()
	var name string
	for other := range files(t, disk) {
		if path.Ext(other) == ".sst" {
			name = other
		}
	}
	flipByte(t, disk, name, 5)
	for range 3 {
		damages, _ := found(t, e)
		require.Len(t, damages, 1)
		require.Subset(t, e.Damages(), damages)
	}
	require.Len(t, told, 1)
	require.Equal(t, name, path.Join("data", told[0].File))
	require.Zero(t, told[0].Offset)
	_, err := e.DeleteRange(t.Context(), kv.Range{}, buffered)
	require.NoError(t, err)
	require.NoError(t, e.Flush(t.Context()))
	testwait.Until(t, func() bool { return len(e.Damages()) == 0 }, "the table is dropped unread")
}

func flipByte(t testing.TB, disk *vfs.Mem, name string, at int64) {
	t.Helper()
	f, err := disk.OpenReadWrite(name)
	require.NoError(t, err)
	b := []byte{0}
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b, at)
	require.NoError(t, errors.Join(err, f.Close()))
}

func TestOneScrubRunsAtATimeAndCloseEndsIt(t *testing.T) {
	synctest.Test(t, oneScrubRunsAtATimeAndCloseEndsIt)
}

func oneScrubRunsAtATimeAndCloseEndsIt(t *testing.T) {
	e := newScrubStore(t, scrubOptions(vfs.NewMem()))
	begun, ended := make(chan struct{}), make(chan error, 1)
	begin := sync.OnceFunc(func() {
		close(begun)
		<-e.scrubs.life.Done()
		synctest.Wait() // until that has ended the context of the scrub
	})
	go func() { ended <- e.Scrub(context.Background(), 0, func(ScrubStep) { begin() }) }()
	<-begun
	require.ErrorIs(t, e.Scrub(t.Context(), 0, func(ScrubStep) {}), kv.ErrOverloaded)
	require.NoError(t, e.Close())
	require.ErrorIs(t, <-ended, kv.ErrClosed)
	require.ErrorIs(t, e.Scrub(t.Context(), 0, func(ScrubStep) {}), kv.ErrClosed)
}

func TestAScrubEndsWithItsContext(t *testing.T) {
	e := newScrubStore(t, scrubOptions(vfs.NewMem()))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := e.Scrub(ctx, 0, func(ScrubStep) { cancel(why) })
	require.ErrorIs(t, err, why)
	require.Zero(t, e.Stats().Scrubs.Passes)
}

// A scrub reads at its rate, but for the newest segment of the log, which it reads at once.
func TestAScrubReadsAtItsRate(t *testing.T) { synctest.Test(t, aScrubReadsAtItsRate) }

func aScrubReadsAtItsRate(t *testing.T) {
	const rate, newest, manifests = 64 << 10, 192 << 10, 16 << 10
	e, m := newMeteredStore(t, newest)
	require.NoError(t, e.Scrub(t.Context(), rate, func(ScrubStep) {}))
	bytes, took := m.Total()
	require.Greater(t, bytes, int64(20*rate))
	require.GreaterOrEqual(t, took.Seconds(), float64(bytes-largestRead-manifests)/rate-0.04, "%d bytes", bytes)
	for _, within := range []time.Duration{time.Second, 10 * time.Second} {
		require.LessOrEqual(t, m.Most(within), int64(rate*(within.Seconds()+0.04))+largestRead+newest+manifests, "%d bytes in %v", bytes, took)
	}
}

// newMeteredStore opens a store with tables, value files, and a log whose newest segment has newest
// bytes. The meter has counted nothing yet. It is for bubbles, in which nothing else is read for
// minutes.
func newMeteredStore(t *testing.T, newest int) (*Engine, *pacetest.Meter) {
	t.Helper()
	m := &pacetest.Meter{FS: vfs.NewMem()}
	e := newScrubStore(t, scrubOptions(m))
	for i := range 300 {
		put(t, e, key(1000+i), strings.Repeat("v", 8<<10), buffered)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	synctest.Wait() // until the log has been reclaimed, which the next frame of it notes
	put(t, e, "k", strings.Repeat("v", newest), synced)
	synctest.Wait()
	m.Reset()
	return e, m
}

// largestRead is the most that tables, value files and the log read at once.
const largestRead = 256 << 10

// A store that is only read is scrubbed too, but for its log.
func TestAScrubOfAReadOnlyStore(t *testing.T) {
	disk := vfs.NewMem()
	o := scrubOptions(disk)
	require.NoError(t, newScrubStore(t, o).Close())
	o.ReadOnly = true
	e := open(t, o)
	damages, last := found(t, e)
	require.Empty(t, damages)
	require.Positive(t, last.Files)
}

// The background scrub goes over all files again and again.
func TestTheBackgroundScrubFindsDamage(t *testing.T) {
	disk := vfs.NewMem()
	o := scrubOptions(disk)
	o.ScrubInterval = time.Millisecond
	e := newScrubStore(t, o)
	testwait.Until(t, func() bool { return e.Stats().Scrubs.Passes >= 2 })
	require.Empty(t, e.Damages())
	stats := e.Stats().Scrubs
	require.Positive(t, stats.Bytes)
	require.False(t, stats.Last.IsZero())
	var name string
	for other := range files(t, disk) {
		if path.Ext(other) == ".val" {
			name = other
		}
	}
	flipByte(t, disk, name, 10)
	testwait.Until(t, func() bool { return len(e.Damages()) > 0 })
	require.Equal(t, name, path.Join("data", e.Damages()[0].File))
}

func TestScrubRate(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for total, want := range map[int64]int64{
		0:         minScrubRate,
		1 << 30:   minScrubRate,
		604800e6:  1e6, // bytes, a second each
		100 << 40: maxScrubRate,
	} {
		require.Equal(t, want, scrubRate(total, week), total)
	}
}
