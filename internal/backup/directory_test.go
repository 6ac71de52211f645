package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestABackupIsRestored(t *testing.T) {
	disk := newDisk(t)
	s := small()
	d := lock(t, disk)
	done, total := int64(0), int64(0)
	progress := Options{Progress: func(bytes, all int64) { done += bytes; total = all }}
	r, err := d.Create(t.Context(), s, noon, progress)
	require.NoError(t, err)
	assert.Equal(t, "20261123T120000.005Z", r.ID)
	assert.EqualValues(t, 7, r.Version)
	assert.Equal(t, len(s.names), r.Copied)
	assert.Equal(t, s.sent, r.CopiedBytes)
	assert.Equal(t, total, done)
	assert.Equal(t, r.Bytes(), total)

	m, err := d.Load("")
	require.NoError(t, err)
	require.Equal(t, r.Manifest, m)
	require.NoError(t, d.Verify(t.Context(), []*Manifest{m}, Options{}))
	done, total = 0, 0
	require.NoError(t, d.Restore(t.Context(), m, nil, "restored", progress))
	assert.Equal(t, total, done)
	requireStore(t, disk, "restored", s, "")

	require.ErrorIs(t, d.Restore(t.Context(), m, nil, "restored", Options{}), kv.ErrInvalidArgument, "it is not empty")
	requireStore(t, disk, "restored", s, "after the refusal")
}

func TestASecondBackupCopiesWhatIsNew(t *testing.T) {
	disk := newDisk(t)
	s := small()
	d := lock(t, disk)
	first, err := d.Create(t.Context(), s, noon, Options{})
	require.NoError(t, err)
	old := small()
	s.sent = 0
	s.set("p-0001/000009.sst", "a new table")
	s.set("wal/000001.wal", "a new segment")
	s.set("p-0001/CURRENT", "c2")
	second, err := d.Create(t.Context(), s, noon.Add(-time.Hour), Options{})
	require.NoError(t, err)
	require.Less(t, first.ID, second.ID, "also if the clock was set back")
	require.EqualValues(t, len("a new table")+len("a new segment")+len("c2"), s.sent)
	require.Equal(t, s.sent, second.CopiedBytes)
	require.Equal(t, 3, second.Copied)
	require.Equal(t, second.Bytes(), second.CopiedBytes+second.ReusedBytes)

	all, err := d.Manifests()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.NoError(t, d.Verify(t.Context(), all, Options{}))
	require.NoError(t, d.Restore(t.Context(), all[0], nil, "first", Options{}))
	require.NoError(t, d.Restore(t.Context(), all[1], nil, "second", Options{}))
	requireStore(t, disk, "first", old, "")
	requireStore(t, disk, "second", s, "")

	p, err := d.Prune(1)
	require.NoError(t, err)
	require.Equal(t, []string{first.ID}, p.Backups)
	require.Equal(t, 2, p.Files, "the old segment and the old CURRENT")
	m, err := d.Load("")
	require.NoError(t, err)
	require.NoError(t, d.Restore(t.Context(), m, nil, "after prune", Options{}))
	requireStore(t, disk, "after prune", s, "")
	_, err = d.Prune(0)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
}

// A file of an earlier backup that was damaged since, and has its name and length, is copied again:
// both backups are whole then.
func TestADamagedFileIsNotSharedWithTheNextBackup(t *testing.T) {
	s := small()
	for _, name := range s.names {
		content := s.contents[name]
		if content == "" {
			continue
		}
		disk := newDisk(t)
		d := lock(t, disk)
		_, err := d.Create(t.Context(), s, noon, Options{})
		require.NoError(t, err)
		write(t, disk, path.Join("backups/files", storedName(name, sumOf([]byte(content)))), "X"+content[1:])
		r, err := d.Create(t.Context(), s, noon.Add(time.Hour), Options{})
		require.NoError(t, err)
		require.Equal(t, 1, r.Copied, name)
		all, err := d.Manifests()
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.NoError(t, d.Verify(t.Context(), all, Options{}), name)
	}
}

// After each file at which a backup is interrupted, there is no backup, the one before is
// whole, and the next attempt copies only what is missing.
func TestAnInterruptedBackupGoesOn(t *testing.T) {
	s := small()
	for i, name := range s.names {
		disk := newDisk(t)
		older := newStore("STORE", "the store", "p-0000/CURRENT", "older")
		_, err := create(t.Context(), disk, older)
		require.NoError(t, err)
		s.sent, s.fail = 0, map[string]bool{name: true}
		_, err = create(t.Context(), disk, s)
		require.ErrorIs(t, err, errFetch)
		require.ErrorContains(t, err, name)
		d, err := OpenDirectory(disk, "backups")
		require.NoError(t, err)
		all, err := d.Manifests()
		require.NoError(t, err)
		require.Len(t, all, 1, at(i))
		require.NoError(t, d.Verify(t.Context(), all, Options{}))

		s.fail = nil
		r, err := create(t.Context(), disk, s)
		require.NoError(t, err)
		require.Equal(t, r.Bytes()-int64(len("the store")), s.sent, "no byte was copied twice, STORE not at all")
		require.NoError(t, d.Restore(t.Context(), r.Manifest, nil, "restored", Options{}))
		requireStore(t, disk, "restored", s, name)
	}
}

// A backup, an archive and a restored store that are finished survive a power cut, also if their
// directories lie in new ones.
func TestNewDirectoriesSurviveAPowerCut(t *testing.T) {
	disk := newDisk(t)
	s := small()
	d, err := LockDirectory(disk, "a/b/backups", true)
	require.NoError(t, err)
	r, err := d.Create(t.Context(), s, noon, Options{})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	archive, err := lockArchive(disk, "c/d/archive")
	require.NoError(t, err)
	require.NoError(t, archive.close())
	require.NoError(t, d.Restore(t.Context(), r.Manifest, nil, "e/f/store", Options{}))
	_, err = RestoreStream(t.Context(), bytes.NewReader(stream(t, s)), nil, disk, "g/h/store", Options{})
	require.NoError(t, err)

	image := disk.CrashImage(vfs.DropAll, nil)
	_, err = OpenArchive(image, "c/d/archive")
	require.NoError(t, err)
	requireStore(t, image, "e/f/store", s, "restored")
	requireStore(t, image, "g/h/store", s, "of a stream")
	d, err = OpenDirectory(image, "a/b/backups")
	require.NoError(t, err)
	all, err := d.Manifests()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, d.Verify(t.Context(), all, Options{}))
}

// What changes on the way from the store is found, and no backup is made of it.
func TestDamageOnTheWayIsFound(t *testing.T) {
	s := small()
	for _, name := range s.names {
		if s.contents[name] == "" {
			continue
		}
		s.corrupt = map[string]bool{name: true}
		disk := newDisk(t)
		_, err := create(t.Context(), disk, s)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		d, err := OpenDirectory(disk, "backups")
		require.NoError(t, err)
		_, err = d.Load("")
		require.ErrorContains(t, err, "no complete backup")
		files, err := disk.List("backups/files")
		require.NoError(t, err)
		for _, file := range files {
			require.False(t, strings.HasPrefix(file, strings.ReplaceAll(name, "/", "-")), "%s is removed", file)
		}
	}
}

// Each changed bit of each file of a backup, and each cut, is found by Verify and by
// Restore, with the name of the file.
func TestDamageOfABackupIsFound(t *testing.T) {
	testsize.OneGoroutine(t)
	clean := newDisk(t)
	s := small()
	r, err := create(t.Context(), clean, s)
	require.NoError(t, err)
	damage := func(name string, change func([]byte) []byte) {
		disk := clean.CrashImage(vfs.KeepAll, nil)
		b, err := readFile(disk, name, 1<<20)
		require.NoError(t, err)
		write(t, disk, name, string(change(b)))
		d, err := OpenDirectory(disk, "backups")
		require.NoError(t, err)
		m, err := d.Load("")
		if strings.HasSuffix(name, manifestSuffix) {
			require.Error(t, err)
			require.True(t, errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion), "%v", err)
			_, err = d.Prune(1)
			require.Error(t, err, "it is unknown what may be removed")
			return
		}
		require.NoError(t, err)
		err = d.Verify(t.Context(), []*Manifest{m}, Options{})
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, ", in backup "+m.ID)
		err = d.Restore(t.Context(), m, nil, "restored", Options{})
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.ErrorContains(t, err, "remove it before")
		_, err = disk.Stat(descriptor.Path("restored"))
		require.Error(t, err, "it is no store")
	}
	names := []string{"backups/" + r.ID + manifestSuffix}
	for i := range r.Files {
		names = append(names, path.Join("backups", filesName, storedName(r.Files[i].Name, uint64(r.Files[i].Sum))))
	}
	for _, name := range names {
		b, err := readFile(clean, name, 1<<20)
		require.NoError(t, err)
		for i := range b {
			damage(name, func(b []byte) []byte { b[i] ^= 1 << (i % 8); return b })
			if i%16 == 0 || i == len(b)-1 {
				damage(name, func(b []byte) []byte { return b[:i] })
			}
		}
		damage(name, func(b []byte) []byte { return append(b, 0) })
	}
	disk := clean.CrashImage(vfs.KeepAll, nil)
	require.NoError(t, disk.Remove(names[1]))
	d, err := OpenDirectory(disk, "backups")
	require.NoError(t, err)
	require.ErrorContains(t, d.Verify(t.Context(), []*Manifest{r.Manifest}, Options{}), "missing")

	again, err := create(t.Context(), disk, s)
	require.NoError(t, err)
	require.Equal(t, 1, again.Copied, "what is missing is copied again")
	require.NoError(t, d.Verify(t.Context(), []*Manifest{r.Manifest, again.Manifest}, Options{}))
}

// An operator can tell which of the backups in a directory a damaged file concerns.
func TestDamageNamesTheBackupsThatNeedTheFile(t *testing.T) {
	disk := newDisk(t)
	var all []*Manifest
	for i := range 7 {
		r, err := create(t.Context(), disk, newStore("STORE", "the store", "p-0000/CURRENT", fmt.Sprint(i), "p-0000/000001.sst", "shared"))
		require.NoError(t, err)
		all = append(all, r.Manifest)
	}
	d, err := OpenDirectory(disk, "backups")
	require.NoError(t, err)
	damage := func(m *Manifest, file string) {
		for i := range m.Files {
			if f := &m.Files[i]; f.Name == file {
				write(t, disk, d.filePath(f), "damaged")
			}
		}
	}
	damage(all[3], "p-0000/CURRENT")
	err = d.Verify(t.Context(), all, Options{})
	require.ErrorContains(t, err, ", in backup "+all[3].ID)
	require.NotContains(t, err.Error(), all[2].ID)
	damage(all[3], "p-0000/000001.sst")
	require.ErrorContains(t, d.Verify(t.Context(), all[2:4], Options{}), "000001.sst")
	require.ErrorContains(t, d.Verify(t.Context(), all[2:4], Options{}), fmt.Sprintf(", in backups %s, %s", all[2].ID, all[3].ID))
	require.ErrorContains(t, d.Verify(t.Context(), all, Options{}), fmt.Sprintf(", in 7 backups, from %s to %s", all[0].ID, all[6].ID))
}

// A power cut at any moment of a backup, or of removing backups, leaves every backup that
// has a manifest whole, and the next backup succeeds.
func TestABackupAtEveryCrash(t *testing.T) {
	testsize.OneGoroutine(t)
	older, s := newStore("STORE", "the store", "p-0000/CURRENT", "older", "p-0000/000001.sst", "older"), small()
	disk := newDisk(t)
	checked, found := 0, [3]int{}
	check := func(image *vfs.Mem, least, most int) {
		d, err := OpenDirectory(image, "backups")
		if least == 0 && err != nil {
			_, err = create(t.Context(), image, s)
			require.NoError(t, err)
			return
		}
		require.NoError(t, err)
		all, err := d.Manifests()
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(all), least)
		require.LessOrEqual(t, len(all), most)
		require.NoError(t, d.Verify(t.Context(), all, Options{}))
		_, err = create(t.Context(), image, s)
		require.NoError(t, err)
		m, err := d.Load("")
		require.NoError(t, err)
		require.NoError(t, d.Restore(t.Context(), m, nil, "restored", Options{}))
		requireStore(t, image, "restored", s, "")
		found[len(all)]++
		checked++
	}
	watch := func(least, most int) {
		disk.SetHook(func(step vfs.Step) {
			for _, policy := range vfs.CrashPolicies {
				check(disk.CrashImage(policy, rand.New(rand.NewPCG(1, uint64(step.N)))), least, most)
			}
		})
	}
	watch(0, 1)
	_, err := create(t.Context(), disk, older)
	require.NoError(t, err)
	watch(1, 2)
	_, err = create(t.Context(), disk, s)
	require.NoError(t, err)
	d := lock(t, disk)
	watch(1, 2)
	_, err = d.Prune(1)
	require.NoError(t, err)
	disk.SetHook(nil)
	check(disk.CrashImage(vfs.DropAll, nil), 1, 1)
	require.Greater(t, checked, 100)
	require.Positive(t, found[0]*found[1]*found[2], "%v", found)
}

// A power cut at any moment of a restore leaves a whole store, or a directory that no
// server takes for a store or for the place of a new one.
func TestARestoreAtEveryCrash(t *testing.T) {
	s := small()
	source := newDisk(t)
	r, err := create(t.Context(), source, s)
	require.NoError(t, err)
	whole, unfinished := 0, 0
	check := func(image *vfs.Mem) {
		if _, err := image.Stat(descriptor.Path("restored")); err == nil {
			got := tree(t, image, "restored")
			delete(got, descriptor.RestoringName)
			require.Equal(t, s.contents, got)
			whole++
			return
		}
		names, err := image.List("restored")
		if err != nil || len(names) == 0 {
			return
		}
		foreign, err := descriptor.Foreign(image, "restored")
		require.NoError(t, err)
		require.Contains(t, foreign, descriptor.RestoringName)
		_, err = beginRestore(image, "restored")
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		unfinished++
	}
	watch := func(disk *vfs.Mem) {
		disk.SetHook(func(step vfs.Step) {
			for _, policy := range vfs.CrashPolicies {
				for seed := range uint64(4) {
					check(disk.CrashImage(policy, rand.New(rand.NewPCG(seed, uint64(step.N)))))
				}
			}
		})
	}
	d, err := OpenDirectory(source, "backups")
	require.NoError(t, err)
	watch(source)
	require.NoError(t, d.Restore(t.Context(), r.Manifest, nil, "restored", Options{}))
	source.SetHook(nil)
	check(source.CrashImage(vfs.DropAll, nil))
	require.Positive(t, whole*unfinished)

	disk := newDisk(t)
	watch(disk)
	_, err = RestoreStream(t.Context(), strings.NewReader(string(stream(t, s))), nil, disk, "restored", Options{})
	require.NoError(t, err)
	disk.SetHook(nil)
	requireStore(t, disk.CrashImage(vfs.DropAll, nil), "restored", s, "of a stream")
}

// Every operation of the file system fails once: the command says so and leaves the earlier
// backup whole, and the next attempt succeeds. A full disk is one of these failures.
func TestEveryFault(t *testing.T) {
	testsize.OneGoroutine(t)
	s, older := small(), newStore("STORE", "the store", "p-0000/CURRENT", "older")
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		for i, fired := 0, true; fired; i++ {
			disk := newDisk(t)
			_, err := create(t.Context(), disk, older)
			require.NoError(t, err)
			failing := faultfs.Wrap(disk, faultfs.FailAt(i, fault, false))
			r, err := create(t.Context(), failing, s)
			fired = failing.Fired()
			if err != nil {
				require.ErrorIs(t, err, fault, at(i))
			}
			d, err2 := OpenDirectory(disk, "backups")
			require.NoError(t, err2)
			all, err2 := d.Manifests()
			require.NoError(t, err2)
			require.NoError(t, d.Verify(t.Context(), all, Options{}), at(i))
			if err == nil {
				require.Len(t, all, 2, at(i))
				require.Equal(t, r.Manifest, all[1])
			}
			_, err = create(t.Context(), disk, s)
			require.NoError(t, err)

			failing = faultfs.Wrap(disk, faultfs.FailAt(i, fault, false))
			failingDir, err := OpenDirectory(failing, "backups")
			if err == nil {
				var m *Manifest
				if m, err = failingDir.Load(""); err == nil {
					err = failingDir.Restore(t.Context(), m, nil, "restored", Options{})
				}
			}
			fired = fired || failing.Fired()
			if err != nil {
				require.ErrorIs(t, err, fault, at(i))
				require.Regexp(t, "backups|restored|syncdir", err.Error(), "it names the file")
			}
			if _, statErr := disk.Stat(descriptor.Path("restored")); err == nil || statErr == nil {
				got := tree(t, disk, "restored")
				delete(got, descriptor.RestoringName)
				require.Equal(t, s.contents, got, at(i))
			}
		}
	}
}

func TestADirectoryIsLockedAndIsNotForOtherFiles(t *testing.T) {
	disk := newDisk(t)
	d, err := LockDirectory(disk, "backups", true)
	require.NoError(t, err)
	_, err = LockDirectory(disk, "backups", true)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, d.Close())
	lock(t, disk)

	write(t, disk, "elsewhere/mine", "precious")
	_, err = LockDirectory(disk, "elsewhere", true)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "mine")
	_, err = LockDirectory(disk, "nowhere", false)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = OpenDirectory(disk, "elsewhere")
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	write(t, disk, "elsewhere/"+markerName, "kvd-backups 2\n")
	_, err = OpenDirectory(disk, "elsewhere")
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
}

// heldUp is a store whose table is sent in two halves, an hour apart.
type heldUp struct {
	*store
	resumed time.Time
}

func (s *heldUp) Fetch(ctx context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	sum, r, err := s.store.Fetch(ctx, name, known)
	if content := s.contents[name]; len(content) == 1<<20 {
		r = io.MultiReader(strings.NewReader(content[:1<<19]), hold(func() { s.resumed = time.Now() }), strings.NewReader(content[1<<19:]))
	}
	return sum, r, err
}

// hold is a reader that has nothing, and takes an hour.
type hold func()

func (h hold) Read([]byte) (int, error) {
	time.Sleep(time.Hour)
	h()
	return 0, io.EOF
}

// After it was held up, a backup goes on at its rate.
func TestABackupThatWasHeldUpDoesNotCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &heldUp{store: newStore("STORE", "the store", "p-0000/000001.sst", strings.Repeat("x", 1<<20))}
		_, err := lock(t, newDisk(t)).Create(t.Context(), s, noon, Options{Rate: 128 << 10})
		require.NoError(t, err)
		require.InDelta(t, 4, time.Since(s.resumed).Seconds(), 0.05)
	})
}

func TestABackupKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk(t)
		s := newStore("STORE", "the store", "p-0000/000001.sst", strings.Repeat("x", 1<<20))
		d := lock(t, disk)
		begin := time.Now()
		_, err := d.Create(t.Context(), s, noon, Options{Rate: 100 << 10})
		require.NoError(t, err)
		require.InDelta(t, 10.24, time.Since(begin).Seconds(), 0.01)

		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		s.set("p-0000/000001.sst", strings.Repeat("y", 1<<20))
		begin = time.Now()
		_, err = d.Create(ctx, s, noon, Options{Rate: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// A damaged manifest of a newer backup does not keep an older one from being found, and is named if that
// backup may be the better one.
func TestADamagedManifestIsPassedOver(t *testing.T) {
	disk := newDisk(t)
	for _, version := range []kv.SeqNum{7, 9, 11, 13} {
		s := small()
		s.version = version
		_, err := create(t.Context(), disk, s)
		require.NoError(t, err)
	}
	d := lock(t, disk)
	ids, err := d.IDs()
	require.NoError(t, err)
	requireFound := func(version, want kv.SeqNum, skippedIDs ...string) {
		t.Helper()
		m, skipped, err := d.LoadBefore(version)
		require.NoError(t, err)
		require.Equal(t, want, m.Version)
		if len(skippedIDs) == 0 {
			require.NoError(t, skipped)
		}
		for _, id := range skippedIDs {
			require.ErrorIs(t, skipped, kv.ErrCorrupt)
			require.ErrorContains(t, skipped, id)
		}
	}
	damage := func(i int) { write(t, disk, d.manifestPath(ids[i]), "damaged") }
	requireFound(10, 9)
	damage(3)
	requireFound(10, 9) // that of version 11 says that the damaged one is newer
	requireFound(20, 11, ids[3])
	damage(1)
	requireFound(10, 7, ids[1])
	requireFound(20, 11, ids[3])
	_, _, err = d.LoadBefore(6)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	damage(0)
	_, _, err = d.LoadBefore(10)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, ids[0])
}

// A process that is killed while it writes a manifest leaves ID.backup.tmp, which Prune removes.
func TestAnUnfinishedManifestIsPruned(t *testing.T) {
	disk := newDisk(t)
	_, err := create(t.Context(), disk, small())
	require.NoError(t, err)
	d := lock(t, disk)
	ids, err := d.IDs()
	require.NoError(t, err)
	left := d.manifestPath("20261124T120000.000Z") + ".tmp"
	write(t, disk, left, "unfinished")
	write(t, disk, "backups/mine.backup.tmp", "mine")
	p, err := d.Prune(1)
	require.NoError(t, err)
	require.Equal(t, Pruned{Files: 1, Bytes: int64(len("unfinished"))}, p)
	got := tree(t, disk, "backups")
	require.NotContains(t, got, path.Base(left))
	require.Contains(t, got, "mine.backup.tmp")
	require.Contains(t, got, ids[0]+manifestSuffix)
}
