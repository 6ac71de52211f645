package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// pastStates writes to a store and knows what it held at each version.
type pastStates struct {
	t        testing.TB
	e        *Engine
	now      map[string]string
	versions []kv.SeqNum
	states   []map[string]string // after each of versions
	rng      *rand.Rand
}

func newPastStates(t testing.TB, e *Engine) *pastStates {
	return &pastStates{t: t, e: e, now: map[string]string{}, rng: rand.New(rand.NewPCG(3, 5))}
}

func (h *pastStates) did(version kv.SeqNum) {
	h.versions = append(h.versions, version)
	h.states = append(h.states, maps.Clone(h.now))
}

// at returns what the store held at a version.
func (h *pastStates) at(version kv.SeqNum) map[string]string {
	state := map[string]string{}
	for i, v := range h.versions {
		if v <= version {
			state = h.states[i]
		}
	}
	return state
}

// write does so many writes: micro-batches of several writes, batches over several
// partitions, deletes and range deletes.
func (h *pastStates) write(count int) {
	h.t.Helper()
	for range count {
		level := []kv.Durability{kv.DurabilitySync, kv.DurabilityBuffered, kv.DurabilityMemory}[h.rng.IntN(3)]
		o := kv.WriteOptions{Durability: level}
		value := strings.Repeat(fmt.Sprint(h.rng.IntN(10)), 20+h.rng.IntN(400))
		switch h.rng.IntN(8) {
		case 0: // atomic
			b := new(kv.WriteBatch)
			for range 4 {
				k := key(h.rng.IntN(40))
				b.Put([]byte(k), []byte(value))
				h.now[k] = value
			}
			version, err := h.e.Apply(context.Background(), b, o)
			require.NoError(h.t, err)
			h.did(version)
		case 1:
			k := key(h.rng.IntN(40))
			version, err := h.e.Delete(context.Background(), []byte(k), o)
			require.NoError(h.t, err)
			delete(h.now, k)
			h.did(version)
		case 2:
			first := h.rng.IntN(40)
			version, err := h.e.DeleteRange(context.Background(), kv.Range{Start: []byte(key(first)), End: []byte(key(first + 3))}, o)
			require.NoError(h.t, err)
			for i := first; i < first+3; i++ {
				delete(h.now, key(i))
			}
			h.did(version)
		default: // one call, and versions of their own
			var ws []*kv.Write
			for i := range 3 {
				ws = append(ws, &kv.Write{Durability: level, Op: kv.Op{Kind: kv.KindPut, Key: []byte(key(h.rng.IntN(13) + 13*i)), Value: []byte(value)}})
			}
			require.NoError(h.t, h.e.Write(context.Background(), ws))
			byVersion := map[kv.SeqNum]*kv.Write{}
			least := kv.MaxSeqNum
			for _, w := range ws {
				require.NoError(h.t, w.Err)
				byVersion[w.Version] = w
				least = min(least, w.Version)
			}
			for v, done := kv.SeqNum(least), 0; done < len(ws); v++ {
				if w := byVersion[v]; w != nil {
					h.now[string(w.Op.Key)] = value
					h.did(v)
					done++
				}
			}
		}
	}
}

func archiveOptions(disk vfs.FS) Options {
	o := small(disk)
	o.SegmentBytes = 8 << 10
	o.Archive = ArchiveOptions{FS: disk, Dir: "archive", Interval: 10 * time.Second}
	return o
}

func backUp(t testing.TB, disk vfs.FS, e *Engine) *backup.Manifest {
	t.Helper()
	d, err := backup.LockDirectory(disk, "backups", true)
	require.NoError(t, err)
	c := checkpoint(t, e)
	r, err := d.Create(t.Context(), c, time.Now(), backup.Options{})
	require.NoError(t, err)
	c.Release()
	require.NoError(t, d.Close())
	return r.Manifest
}

// restore restores a backup and the archive up to a version, 0: all of it.
func restore(t testing.TB, disk vfs.FS, m *backup.Manifest, upTo kv.SeqNum, dir string) (*backup.Replay, error) {
	t.Helper()
	a, err := backup.OpenArchive(disk, "archive")
	require.NoError(t, err)
	pieces, err := a.Pieces()
	require.NoError(t, err)
	end := backup.UpTo(upTo)
	if upTo == 0 {
		end = backup.End{}
	}
	r, err := a.Plan(pieces, m, end)
	if err != nil {
		return nil, err
	}
	d, err := backup.OpenDirectory(disk, "backups")
	require.NoError(t, err)
	return r, d.Restore(t.Context(), m, r, dir, backup.Options{})
}

// held returns what a restored store holds.
func held(t testing.TB, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	o := small(disk)
	e, err := Open(dir, o)
	require.NoError(t, err)
	all := contents(t, e)
	require.NoError(t, e.Close())
	return all
}

// A store is written to, flushed, compacted, killed and opened again; its log is archived. A
// backup of the beginning and the archive restore what it held at any later version.
func TestTheArchiveRestoresAnyVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := archiveOptions(disk)
		e := open(t, o)
		h := newPastStates(t, e)
		h.write(30)
		m := backUp(t, disk, e)
		for life := range 3 {
			for range 3 {
				h.write(40)
				require.NoError(t, e.Flush(t.Context()))
				time.Sleep(3 * time.Second) // the log is trimmed
			}
			require.Less(t, e.Stats().Log.LiveBytes, int64(4*o.SegmentBytes), "what is archived and flushed is deleted")
			if life == 1 {
				require.NoError(t, e.CompactAll(t.Context()))
			}
			require.NoError(t, e.Close())
			if life < 2 {
				e = open(t, o)
				h.e = e
			}
		}
		last := h.versions[len(h.versions)-1]
		r, err := restore(t, disk, m, 0, "whole")
		require.NoError(t, err)
		require.Equal(t, last, r.Version, "the log is archived to its end")
		require.Equal(t, h.now, held(t, disk, "whole"))
		require.NoError(t, err)

		tested, samples := 0, 24
		if testsize.Reduced() {
			samples = 8
		}
		for i := 0; i < len(h.versions); i += 1 + h.rng.IntN(2*len(h.versions)/samples) {
			version := h.versions[i]
			if version < m.Version {
				_, err := restore(t, disk, m, version, "too-old")
				require.ErrorIs(t, err, kv.ErrInvalidArgument)
				require.ErrorContains(t, err, fmt.Sprint(version))
				require.ErrorContains(t, err, fmt.Sprint(m.Version))
				continue
			}
			dir := fmt.Sprintf("restored-%d", i)
			_, err := restore(t, disk, m, version, dir)
			require.NoError(t, err)
			require.Equal(t, h.at(version), held(t, disk, dir), "version %d", version)
			tested++
		}
		require.Greater(t, tested, samples/2)
		_, err = restore(t, disk, m, last+1, "beyond")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, fmt.Sprint(last+1))
		require.ErrorContains(t, err, fmt.Sprintf("version %d", last))
	})
}

// A power cut at any moment of a store with an archive leaves an archive of which every piece
// is whole, that restores a state which the store had, with all that was archived before;
// and the store goes on with it, without a gap.
func TestAnArchiveAtEveryCrash(t *testing.T) {
	type image struct {
		disk *vfs.Mem
		step vfs.Step
		most kv.SeqNum // archived before
	}
	var images []image
	disk := vfs.NewMem()
	var m *backup.Manifest
	var h *pastStates
	synctest.Test(t, func(t *testing.T) {
		e := open(t, archiveOptions(disk))
		h = newPastStates(t, e)
		h.write(10)
		m = backUp(t, disk, e)
		rng := rand.New(rand.NewPCG(1, 2))
		disk.SetHook(func(s vfs.Step) {
			if !strings.HasPrefix(path.Clean(s.Name), "archive") {
				return
			}
			before := e.archiver.Status().Version
			for _, policy := range vfs.CrashPolicies {
				images = append(images, image{disk.CrashImage(policy, rng), s, before})
			}
		})
		for range 3 {
			h.write(25)
			require.NoError(t, e.Flush(t.Context()))
			time.Sleep(11 * time.Second)
		}
		disk.SetHook(nil)
		require.NoError(t, e.Close())
	})
	require.Greater(t, len(images), 100)
	check := func(t *testing.T, disk *vfs.Mem, most kv.SeqNum, dir string) kv.SeqNum {
		a, err := backup.OpenArchive(disk, "archive")
		require.NoError(t, err)
		pieces, err := a.Pieces()
		require.NoError(t, err)
		require.NoError(t, a.Verify(t.Context(), pieces, backup.Options{}))
		if len(pieces) == 0 {
			require.Zero(t, most)
			return 0
		}
		r, err := restore(t, disk, m, 0, dir)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Version, most)
		return r.Version
	}
	step := 17 // one policy after the other
	if testsize.Reduced() {
		step = 37
	}
	for i := 0; i < len(images); i += step {
		img := images[i]
		what := fmt.Sprintf("before step %d (%s %s)", img.step.N, img.step.Kind, img.step.Name)
		version := check(t, img.disk, img.most, "restored")
		if version > 0 {
			require.Equal(t, h.at(version), held(t, img.disk, "restored"), what)
		}
		synctest.Test(t, func(t *testing.T) {
			o := archiveOptions(img.disk)
			e, err := Open("data", o)
			require.NoError(t, err, what)
			now := contents(t, e)
			require.NoError(t, e.Close())
			again := check(t, img.disk, version, "again")
			require.Equal(t, now, held(t, img.disk, "again"), what)
			require.GreaterOrEqual(t, again, version)
		})
	}
}

// While the archive cannot be written to, segments are kept up to the backlog. Then the
// oldest go, clients are served on, and the archive says what it lacks: no restore crosses
// that, but one of a later backup succeeds.
func TestAnArchiveThatFailsHoldsTheStoreBackForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		var broken atomic.Bool
		o := archiveOptions(disk)
		o.Archive.FS = faultfs.Wrap(disk, faultfs.InjectorFunc(func(faultfs.Op) (f faultfs.Fault) {
			if broken.Load() {
				f.Err = syscall.EIO
			}
			return f
		}))
		o.Archive.Backlog = 6 * o.SegmentBytes
		var mu sync.Mutex
		var told []event.Archive
		o.Events = &event.Listener{Archive: func(e event.Archive) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}}
		e := open(t, o)
		h := newPastStates(t, e)
		h.write(30)
		m := backUp(t, disk, e)
		h.write(30)
		time.Sleep(11 * time.Second)
		whole := e.Stats().Archive.Version
		require.Equal(t, h.versions[len(h.versions)-1], whole)

		broken.Store(true)
		for e.Stats().Archive.Gaps == 0 {
			h.write(20)
			require.NoError(t, e.Flush(t.Context()))
			time.Sleep(2 * time.Second)
			require.Less(t, e.Stats().Log.LiveBytes, o.Archive.Backlog+5*o.SegmentBytes)
		}
		require.Greater(t, e.Stats().Log.LiveBytes, o.Archive.Backlog/2, "segments were kept")
		require.ErrorIs(t, e.Stats().Archive.Err, syscall.EIO)
		mu.Lock()
		require.Len(t, told, 2, "an error, then the gap")
		require.Error(t, told[0].Err)
		require.NotEmpty(t, told[1].Gap)
		mu.Unlock()
		h.write(20)

		broken.Store(false)
		time.Sleep(time.Minute)
		mu.Lock()
		require.True(t, told[2].Recovered)
		mu.Unlock()
		require.NoError(t, e.Stats().Archive.Err)
		require.Zero(t, e.Stats().Archive.Backlog)
		h.write(20)
		time.Sleep(11 * time.Second)

		_, err := restore(t, disk, m, 0, "over the gap")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "input/output error", "it says why")
		require.ErrorContains(t, err, fmt.Sprintf("--to-version %d", whole))
		_, err = restore(t, disk, m, h.versions[len(h.versions)-1], "over the gap")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = restore(t, disk, m, whole, "before")
		require.NoError(t, err)
		require.Equal(t, h.at(whole), held(t, disk, "before"))

		later := backUp(t, disk, e)
		h.write(20)
		require.NoError(t, e.Close())
		_, err = restore(t, disk, later, 0, "after")
		require.NoError(t, err)
		require.Equal(t, h.now, held(t, disk, "after"))

		a, err := backup.OpenArchive(disk, "archive")
		require.NoError(t, err)
		p, err := a.Prune([]*backup.Manifest{later})
		require.NoError(t, err)
		require.Positive(t, p.Files)
		_, err = restore(t, disk, later, 0, "after prune")
		require.NoError(t, err)
		require.Equal(t, h.now, held(t, disk, "after prune"))
		_, err = restore(t, disk, m, whole, "pruned")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
	})
}

// The disk of the archive is unmounted under the running server, and mounted again. Nothing is
// written to the empty directory in its place, and nothing is missing in the archive.
func TestAnArchiveThatIsTakenAwayIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, archiveOptions(disk))
		h := newPastStates(t, e)
		h.write(30)
		m := backUp(t, disk, e)
		h.write(30)
		time.Sleep(11 * time.Second)

		files := map[string][]byte{}
		names, err := disk.List("archive")
		require.NoError(t, err)
		for _, name := range names {
			name = path.Join("archive", name)
			files[name], err = vfs.ReadSmall(disk, name, 1<<20)
			require.NoError(t, err)
			require.NoError(t, disk.Remove(name))
		}
		h.write(30)
		require.NoError(t, e.Flush(t.Context()))
		time.Sleep(time.Minute)
		names, err = disk.List("archive")
		require.NoError(t, err)
		require.Empty(t, names)
		require.ErrorContains(t, e.Stats().Archive.Err, "mount it")

		for name, content := range files {
			require.NoError(t, vfs.WriteAtomic(disk, name, content))
		}
		time.Sleep(time.Minute)
		require.NoError(t, e.Stats().Archive.Err)
		h.write(30)
		require.NoError(t, e.Close())
		_, err = restore(t, disk, m, 0, "restored")
		require.NoError(t, err)
		require.Equal(t, h.now, held(t, disk, "restored"))
	})
}

// Each operation on the archive fails once: the store goes on, and after the next start the
// archive has everything.
func TestEveryFaultOfTheArchive(t *testing.T) {
	part := 4
	if testsize.Reduced() {
		part = 1
	}
	for i, fired := 0, true; fired; i += 1 + i/part {
		synctest.Test(t, func(t *testing.T) {
			disk := vfs.NewMem()
			o := archiveOptions(disk)
			good := o
			e := open(t, good) // so that the archive exists
			h := newPastStates(t, e)
			h.write(10)
			m := backUp(t, disk, e)
			require.NoError(t, e.Close())

			failing := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.ENOSPC, false))
			o.Archive.FS = failing
			h.e = open(t, o)
			for range 2 {
				h.write(25)
				time.Sleep(11 * time.Second)
			}
			require.NoError(t, h.e.Close())
			fired = failing.Fired()
			h.e = open(t, good)
			require.NoError(t, h.e.Close())
			r, err := restore(t, disk, m, 0, "restored")
			require.NoError(t, err, "operation %d", i)
			require.Equal(t, h.versions[len(h.versions)-1], r.Version, "operation %d", i)
			require.Equal(t, h.now, held(t, disk, "restored"), "operation %d", i)
		})
	}
}

// A restored copy, another store, and a store whose archive was in use by another are told
// apart from the one of the archive.
func TestAnArchiveIsOfOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := archiveOptions(disk)
		e := open(t, o)
		h := newPastStates(t, e)
		h.write(20)
		m := backUp(t, disk, e)
		h.write(60)
		_, err := Open("second", o)
		require.ErrorIs(t, err, vfs.ErrLocked)
		require.NoError(t, e.Close())
		before := h.now

		_, err = restore(t, disk, m, h.versions[len(h.versions)/2], "copy")
		require.NoError(t, err)
		_, err = Open("copy", o)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "another history")
		_, err = Open("third", o)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "an archive of its own")

		own := o
		own.Archive.Dir = "of the copy"
		c, err := Open("copy", own)
		require.NoError(t, err)
		put(t, c, "new", "life", synced)
		require.NoError(t, c.Close())

		e = open(t, o) // the original goes on with its archive
		put(t, e, "goes", "on", synced)
		require.NoError(t, e.Close())
		_, err = restore(t, disk, m, 0, "end")
		require.NoError(t, err)
		before["goes"] = "on"
		require.Equal(t, before, held(t, disk, "end"))

		// While the store runs without the archive, a part of the log is deleted.
		without := o
		without.Archive = ArchiveOptions{}
		h.e = open(t, without)
		h.write(100)
		require.NoError(t, h.e.Flush(t.Context()))
		time.Sleep(time.Minute)
		h.write(100)
		require.NoError(t, h.e.Flush(t.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, h.e.Close())
		e = open(t, o)
		put(t, e, "after", "the gap", synced)
		require.NoError(t, e.Close())
		_, err = restore(t, disk, m, 0, "over")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "without the archive")
	})
}

// Keys that had expired at a version stay absent in the store that is restored to it, whatever
// the clock of the machine says.
func TestTheArchiveKeepsTheClockOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, archiveOptions(disk))
		put(t, e, "before", "any expiry", synced)
		m := backUp(t, disk, e)
		putFor(t, e, "k", "short", time.Minute, kv.DurabilitySync)
		time.Sleep(10 * time.Minute)
		requireAbsent(t, e, "k")
		put(t, e, "later", "v", synced)
		require.NoError(t, e.Close())
		_, err := restore(t, disk, m, 0, "restored")
		require.NoError(t, err)
		o := small(disk)
		o.time = systemTime(bootClock{})
		slow := time.Now().Add(-5 * time.Hour)
		o.time.wall = func() time.Time { return slow }
		r, err := Open("restored", o)
		require.NoError(t, err)
		requireAbsent(t, r, "k")
		requireValue(t, r, "later", "v")
		require.NoError(t, r.Close())
	})
}

// A time leads to what readers saw then.
func TestTheArchiveFindsTheVersionOfATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, archiveOptions(disk))
		begin := time.Now()
		var versions []kv.SeqNum
		for i := range 30 {
			time.Sleep(1500 * time.Millisecond)
			versions = append(versions, put(t, e, key(i), "v", synced))
			time.Sleep(1500 * time.Millisecond)
		}
		require.NoError(t, e.Close())
		a, err := backup.OpenArchive(disk, "archive")
		require.NoError(t, err)
		pieces, err := a.Pieces()
		require.NoError(t, err)
		for i := range versions {
			at := begin.Add(time.Duration(i+1) * 3 * time.Second) // 1.5 s after the put
			version, err := a.VersionAt(pieces, at)
			require.NoError(t, err)
			require.Equal(t, versions[i], version)
		}
		_, err = a.VersionAt(pieces, begin.Add(-time.Second))
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = a.VersionAt(pieces, time.Now().Add(time.Second))
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "beyond the end")
	})
}

// While the archive hangs, the times of what is written are noted all the same: it is archived
// later, and a time in the hang leads to the version that readers saw then.
func TestAnArchiveThatHangsKeepsTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		puts := 5000 // more than a piece of the first format has times
		if testsize.Reduced() {
			puts = 500
		}
		disk := vfs.NewMem()
		answers := make(chan struct{})
		var hangs atomic.Bool
		o := archiveOptions(disk)
		o.SegmentBytes = 16 << 20
		o.Archive.FS = faultfs.Wrap(disk, faultfs.InjectorFunc(func(op faultfs.Op) (f faultfs.Fault) {
			if hangs.Load() && op.Kind == faultfs.Sync {
				f.Delay = func() { <-answers }
			}
			return f
		}))
		e := open(t, o)
		put(t, e, "first", "v", synced)
		time.Sleep(11 * time.Second)
		hangs.Store(true)
		var versions []kv.SeqNum
		begin := time.Now()
		for i := range puts {
			time.Sleep(500 * time.Millisecond)
			versions = append(versions, put(t, e, key(i%20), "v", synced))
			time.Sleep(1500 * time.Millisecond)
		}
		hangs.Store(false)
		close(answers)
		time.Sleep(time.Minute)
		require.Zero(t, e.Stats().Archive.Gaps)
		require.NoError(t, e.Close())

		a, err := backup.OpenArchive(disk, "archive")
		require.NoError(t, err)
		pieces, err := a.Pieces()
		require.NoError(t, err)
		for i := 0; i < puts; i += 7 {
			version, err := a.VersionAt(pieces, begin.Add(time.Duration(i)*2*time.Second+1900*time.Millisecond))
			require.NoError(t, err)
			require.Equal(t, versions[i], version, "put %d", i)
		}
	})
}

// After a kill, or a run without the archive, the times of some versions are not known: a time
// in between is refused, unless nothing was written.
func TestATimeThatTheArchiveDoesNotKnowIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := archiveOptions(disk)
		at := func() time.Time {
			time.Sleep(2 * time.Second)
			now := time.Now()
			time.Sleep(2 * time.Second)
			return now
		}
		e := open(t, o)
		first := put(t, e, "k", "first", synced)
		running := at()
		require.NoError(t, e.Close())
		stopped := at()
		e = open(t, o)
		second := put(t, e, "k", "second", synced)
		between := at()
		news := put(t, e, "other", "news", synced)
		for e.Stats().Archive.Version < news { // so that the archive knows that it has all of that time
			time.Sleep(time.Second)
		}
		put(t, e, "k", "third", synced) // it is not archived soon
		lost := at()
		disk = disk.KillImage()
		require.NoError(t, e.Close())
		killed := at()
		o = archiveOptions(disk)
		e = open(t, o)
		require.NoError(t, e.Close())
		o.Archive.Dir = ""
		e = open(t, o)
		put(t, e, "k", "fourth", synced)
		without := at()
		require.NoError(t, e.Close())
		o = archiveOptions(disk)
		e = open(t, o)
		fifth := put(t, e, "k", "fifth", synced)
		end := at()
		require.NoError(t, e.Close())

		a, err := backup.OpenArchive(disk, "archive")
		require.NoError(t, err)
		pieces, err := a.Pieces()
		require.NoError(t, err)
		for _, known := range []struct {
			at   time.Time
			want kv.SeqNum
		}{{running, first}, {stopped, first}, {between, second}, {end, fifth}} {
			version, err := a.VersionAt(pieces, known.at)
			require.NoError(t, err)
			require.Equal(t, known.want, version)
		}
		for _, unknown := range []time.Time{lost, killed, without} {
			_, err := a.VersionAt(pieces, unknown)
			require.ErrorIs(t, err, kv.ErrInvalidArgument)
			require.ErrorContains(t, err, "give --to-version")
		}
	})
}

// An archive that does not answer delays neither clients nor the log for ever: segments are
// given up beyond the backlog. When it answers again, the next pieces say what is missing.
func TestAnArchiveThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		answers := make(chan struct{})
		var hangs atomic.Bool
		o := archiveOptions(disk)
		o.Archive.FS = faultfs.Wrap(disk, faultfs.InjectorFunc(func(op faultfs.Op) (f faultfs.Fault) {
			if hangs.Load() && op.Kind == faultfs.Sync {
				f.Delay = func() { <-answers }
			}
			return f
		}))
		o.Archive.Backlog = 4 * o.SegmentBytes
		e := open(t, o)
		h := newPastStates(t, e)
		h.write(20)
		m := backUp(t, disk, e)
		time.Sleep(11 * time.Second)
		hangs.Store(true)
		for more := 10; more > 0; { // the piece that is being written is not lost
			h.write(20)
			require.NoError(t, e.Flush(t.Context()))
			time.Sleep(2 * time.Second)
			require.Less(t, e.Stats().Log.LiveBytes, o.Archive.Backlog+6*o.SegmentBytes)
			if e.Stats().Archive.Gaps > 0 {
				more--
			}
		}
		hangs.Store(false)
		close(answers)
		h.write(20)
		time.Sleep(time.Minute)
		require.Zero(t, e.Stats().Archive.Backlog)
		_, err := restore(t, disk, m, 0, "over the gap")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "does not answer")
		later := backUp(t, disk, e)
		h.write(20)
		require.NoError(t, e.Close())
		_, err = restore(t, disk, later, 0, "after")
		require.NoError(t, err)
		require.Equal(t, h.now, held(t, disk, "after"))
	})
}

// Segments that wait for an archive that fails are given up when they fill the disk of the
// store, so that clients can go on that only overwrite.
func TestAnArchiveThatFailsDoesNotFillTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := fullOptions(disk)
		var broken atomic.Bool
		o.Archive = ArchiveOptions{Dir: "archive", FS: faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(faultfs.Op) (f faultfs.Fault) {
			if broken.Load() {
				f.Err = syscall.ENOSPC
			}
			return f
		}))}
		e := open(t, o)
		value := strings.Repeat("v", 1000)
		put(t, e, "k", value, synced)
		time.Sleep(2 * time.Minute)
		usage, err := disk.Usage("data")
		require.NoError(t, err)
		disk.SetCapacity(int64(usage.Total-usage.Free) + 2<<20)
		broken.Store(true)
		for i := 0; e.Stats().Archive.Gaps == 0; i++ {
			require.Less(t, i, 100_000, "the archive keeps the log, so the disk gets full")
			if _, err := e.Put(t.Context(), []byte(key(i%20)), []byte(value), synced); err != nil {
				require.ErrorIs(t, err, kv.ErrReadOnly)
				time.Sleep(time.Second)
			}
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		put(t, e, "k", value, synced)
		require.ErrorIs(t, e.Stats().Archive.Err, syscall.ENOSPC)
	})
}

// A store that is restored from an archive recognises a write that is sent again, refuses
// versions that clients read in the other store, and gives none of its numbers out again.
func TestAStoreRestoredFromAnArchiveHasALifeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, archiveOptions(disk))
		put(t, e, "a", "1", synced)
		m := backUp(t, disk, e)
		o := synced
		o.RequestID = kv.RequestID{ClientID: 7, Sequence: 1}
		version := put(t, e, "k", "v", o)
		s, err := e.BeginSnapshot(t.Context(), 0)
		require.NoError(t, err)
		last := put(t, e, "a", "2", synced)
		require.NoError(t, e.Close())

		_, err = restore(t, disk, m, 0, "restored")
		require.NoError(t, err)
		r, err := Open("restored", small(disk))
		require.NoError(t, err)
		o.RequestID.Retried = true
		require.Equal(t, version, put(t, r, "k", "v", o), "it was applied")
		tx := &kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Keys: [][]byte{[]byte("k")}, Batch: new(kv.WriteBatch)}
		tx.Batch.Put([]byte("k"), []byte("w"))
		_, err = r.Commit(t.Context(), tx, synced)
		require.ErrorIs(t, err, kv.ErrOtherOpening)
		require.Greater(t, put(t, r, "b", "3", synced), last)
		requireValue(t, r, "a", "2")
		require.NoError(t, r.Close())
	})
}
