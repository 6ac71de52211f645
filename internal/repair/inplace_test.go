package repair

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

const (
	scratchDir = "scratch"
	asideDir   = "aside"
)

// layered is a store whose partitions have a base and two deltas each, which overlap: no merge is
// due, because the base is large beside them. It is made in a bubble: at rest for ten seconds, one
// would be due.
var layered struct {
	sync.Once
	history
}

func newLayered(t *testing.T) *history {
	layered.Do(func() {
		synctest.Test(t, func(t *testing.T) { layered.history = *makeLayered(t) })
	})
	require.NotEmpty(t, layered.files, "the test that made the store failed")
	h := layered.history
	h.t, h.disk, h.writes = t, h.disk.KillImage(), slices.Clip(h.writes)
	h.known, h.sorted = map[string][]written{}, h.keys()
	return &h
}

func makeLayered(t testing.TB) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	padded := func(i int, round string) { h.put(i, round+strings.Repeat(" ", 40)) }
	for i := range 900 {
		padded(i, "first")
	}
	require.NoError(t, h.e.CompactAll(t.Context()))
	for i := 100; i < 700; i += 4 {
		padded(i, "second")
		if i == 400 {
			h.delRange(300, 320)
			h.delRange(390, 394)
			h.halfway = filesOf(t, h.disk.KillImage(), damagedDir)
		}
	}
	for i := 103; i < 700; i += 40 {
		h.del(i)
	}
	require.NoError(t, h.e.Flush(t.Context()))
	for i := 104; i < 700; i += 8 {
		padded(i, "third")
	}
	for i := 105; i < 700; i += 60 {
		h.del(i)
		h.del(i + 3)
	}
	h.delRange(500, 510)
	h.batch(504, 3, "batch")
	require.NoError(t, h.e.Flush(t.Context()))
	h.batch(600, 5, "in the log")
	h.del(700)
	h.close()
	h.closed()
	for id := range partitions {
		v, err := manifest.Load(h.disk, descriptor.PartitionDir(damagedDir, id), uint32(id))
		require.NoError(t, err)
		require.Len(t, v.Deltas, 2)
		require.NotEmpty(t, v.Base)
	}
	return h
}

// repairInPlace plans a repair and, with apply, does it.
func repairInPlace(t testing.TB, fsys vfs.FS, backup string, apply bool) (*Report, error) {
	t.Helper()
	s, err := PlanInPlace(t.Context(), fsys, damagedDir, InPlaceOptions{Scratch: scratchDir, Backup: backup, PlanOnly: !apply})
	if err != nil {
		return nil, err
	}
	if apply {
		err = s.Apply(t.Context(), asideDir)
	}
	return s.Report(), errors.Join(err, s.Close())
}

// itemsOf returns what a store shows. Keys in damaged ranges have no item, and are in damaged.
func (h *history) itemsOf(disk vfs.FS, dir string) (items map[string]kv.Item, damaged map[string]bool) {
	t := h.t
	options := testOptions(disk)
	options.ReadOnly, options.Partitions, options.AllowDamaged = true, 0, true
	e, err := engine.Open(dir, options)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	items, damaged = map[string]kv.Item{}, map[string]bool{}
	for _, key := range h.keys() {
		item, err := e.Get(t.Context(), []byte(key))
		switch {
		case errors.Is(err, kv.ErrCorrupt):
			damaged[key] = true
		case errors.Is(err, kv.ErrNotFound):
		case err != nil:
			require.NoError(t, err)
		default:
			item.Key, item.Value = bytes.Clone(item.Key), bytes.Clone(item.Value)
			items[key] = item
		}
	}
	return items, damaged
}

// truth returns the write that a key shows if nothing is lost, at a version; nil: it is absent.
func (h *history) truth(key string, at kv.SeqNum) *written {
	for _, w := range h.of(key) {
		if w.version <= at {
			if w.kind != kv.KindPut {
				return nil
			}
			return &w
		}
	}
	return nil
}

// judgeInPlace checks a store that was repaired in place against the history: it is whole, a key
// shows its newest write or, if the report covers that, what the backup had or nothing. What the
// damaged store could answer it answers as before.
func (h *history) judgeInPlace(disk *vfs.Mem, r *Report, before map[string]kv.Item, unreadable map[string]bool) (lost int) {
	t := h.t
	t.Helper()
	checked, err := inspect.Check(t.Context(), disk, damagedDir, nil, nil)
	require.NoError(t, err)
	require.NoError(t, checked.Err(), "the store is whole")
	for _, f := range checked.Files {
		require.NotEqual(t, inspect.KindOther, f.Kind, "the store has only files that it needs: %s", f.Path)
	}
	_, err = disk.Stat(scratchDir)
	require.Error(t, err, "the scratch directory is gone")
	after, damaged := h.itemsOf(disk, damagedDir)
	require.Empty(t, damaged)
	h.requireNotInvented(before)
	h.requireNotInvented(after)
	for _, key := range h.keys() {
		item, shows := after[key]
		if was, answered := before[key]; answered || !unreadable[key] {
			if !reflect.DeepEqual(was, item) { // no assertion: this runs often
				require.Equal(t, was, item, "%q could be read before", key)
			}
			continue
		}
		want := h.truth(key, kv.MaxSeqNum)
		if want != nil && shows && item.Version == want.version {
			if want.value != string(item.Value) || want.expiry != item.Expiry { // no assertion: this runs often
				require.Equal(t, want.value, string(item.Value))
				require.Equal(t, want.expiry, item.Expiry)
			}
			continue
		}
		if want == nil && !shows {
			continue
		}
		lost++
		newest := h.of(key)[0]
		partition := keyhash.Partition(keyhash.Sum([]byte(key)), partitions)
		require.Truef(t, r.Covers(partition, []byte(key), newest.version),
			"%q shows %d and not %d, and the report does not say so: %+v", key, item.Version, newest.version, r.Losses)
		if r.BackupVersion == 0 {
			require.Falsef(t, shows, "%q shows version %d, which is older than %d", key, item.Version, newest.version)
			continue
		}
		if old := h.truth(key, r.BackupVersion); old != nil && !shows {
			require.True(t, slices.ContainsFunc(h.of(key), func(w written) bool {
				return w.kind != kv.KindPut && w.version > r.BackupVersion
			}), "%q: the backup has version %d, and the store has none", key, old.version)
		} else if old != nil {
			require.GreaterOrEqual(t, item.Version, old.version, key)
		}
	}
	return lost
}

// inPlace repairs a copy of the store in which a damage was done, and judges the result.
func (h *history) inPlace(backup string, damage func(disk *vfs.Mem)) (r *Report, lost int) {
	t := h.t
	t.Helper()
	disk := h.disk.KillImage()
	damage(disk)
	before, unreadable := h.itemsOf(disk, damagedDir)
	files := filesOf(t, disk, damagedDir)
	planned, err := repairInPlace(t, disk, backup, false)
	require.NoError(t, err)
	require.False(t, planned.InPlace.Done)
	require.Equal(t, files, filesOf(t, disk, damagedDir), "planning changes nothing")

	r, err = repairInPlace(t, disk, backup, true)
	require.NoError(t, err)
	require.Equal(t, planned.Losses, r.Losses)
	require.Equal(t, planned.InPlace.Hidden, r.InPlace.Hidden)
	require.True(t, r.InPlace.Done)
	lost = h.judgeInPlace(disk, r, before, unreadable)
	h.requireKept(disk, files)

	again, err := repairInPlace(t, disk, backup, false)
	require.NoError(t, err)
	require.Zero(t, again.Damaged(), "nothing is left to repair")
	h.requireServes(disk)
	return r, lost
}

// requireKept checks that every file that the store has no more, and that was there, is aside.
func (h *history) requireKept(disk *vfs.Mem, before map[string][]byte) {
	now := filesOf(h.t, disk, damagedDir)
	for name, content := range before {
		base := path.Base(name)
		if bytes.Equal(content, now[name]) || path.Dir(name) == damagedDir || strings.HasPrefix(base, "MANIFEST-") || base == manifest.CurrentName {
			continue
		}
		inside := descriptor.Inside(damagedDir, name)
		require.Equal(h.t, content, contentOf(h.t, disk, path.Join(asideDir, inside)), name)
	}
}

// requireServes writes to the store, compacts it and reads it.
func (h *history) requireServes(disk *vfs.Mem) {
	t := h.t
	t.Helper()
	want, _ := h.itemsOf(disk, damagedDir)
	options := testOptions(disk)
	options.Partitions = 0
	e, err := engine.Open(damagedDir, options)
	require.NoError(t, err)
	_, err = e.Put(t.Context(), []byte("new"), []byte("value"), buffered)
	require.NoError(t, err)
	require.NoError(t, e.CompactAll(t.Context()))
	require.NoError(t, e.Close())
	got, damaged := h.itemsOf(disk, damagedDir)
	require.Empty(t, damaged)
	require.Equal(t, want, got, "a merge changes nothing that is visible")
}

// TestEveryDamageOfATableInPlace damages every kind of place of tables and value files.
func TestEveryDamageOfATableInPlace(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	for _, kind := range []string{".sst", ".val"} {
		lost := 0
		for i, name := range h.named(kind) {
			content := h.files[name]
			n := len(content)
			damages := map[string][]byte{"removed": nil, "cut": slices.Clip(content[:n*2/3])}
			for what, at := range map[string]int{"data": n / 3, "near the end": n - 150, "footer": n - 30} {
				flipped := slices.Clone(content)
				flipped[at] ^= 1
				damages[what] = flipped
			}
			both := slices.Clone(content)
			both[n/3] ^= 1
			clear(both[n*9/10:])
			damages["data and tail"] = both
			damages["another file"] = h.files[h.named(kind)[(i+1)%len(h.named(kind))]]
			for _, what := range slices.Sorted(maps.Keys(damages)) {
				t.Run(strings.TrimPrefix(name, damagedDir+"/")+" "+what, func(t *testing.T) {
					one := *h
					one.t = t
					_, n := one.inPlace("", func(disk *vfs.Mem) { replace(t, disk, name, damages[what]) })
					lost += n
				})
			}
			if testsize.Reduced() || i == 2 && os.Getenv("KVD_DAMAGE") != "full" { // the three runs of one partition
				break
			}
		}
		require.Positive(t, lost, "no damage of %s costs anything, so the test proves little", kind)
	}
}

// A range delete is lost if both its data block and the block of range tombstones are damaged. What
// it deleted stays away then, although the rest of the table, and older tables, have it.
func TestALostRangeDeleteInPlace(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	for _, name := range h.named(".sst") {
		content := slices.Clone(h.files[name])
		rangeDeletes, known := h.rangeDeletes(name, content)
		if rangeDeletes == 0 {
			continue
		}
		for at := len(content) - 1; known; at-- { // into the block of range tombstones, and no other
			flipped := slices.Clone(content)
			flipped[at] ^= 1
			n, still := h.rangeDeletes(name, flipped)
			if !still && n == rangeDeletes {
				content, known = flipped, false
			}
		}
		for at := 100; ; at += 500 {
			flipped := slices.Clone(content)
			flipped[at] ^= 1
			if n, _ := h.rangeDeletes(name, flipped); n < rangeDeletes {
				content = flipped
				break
			}
		}
		r, lost := h.inPlace("", func(disk *vfs.Mem) { replace(t, disk, name, content) })
		require.Positive(t, lost)
		require.True(t, slices.ContainsFunc(r.Losses, func(l Loss) bool { return strings.Contains(l.Reason, "a range delete may be") }))
		return
	}
	require.Fail(t, "no table has a range delete")
}

// rangeDeletes counts the range tombstones that can be read of a table, and reports whether they
// are known to be all, also if data blocks are damaged.
func (h *history) rangeDeletes(name string, content []byte) (n int, known bool) {
	found := h.entriesOf(name, content, func(e *kv.Entry) {
		if e.Kind == kv.KindRangeDelete {
			n++
		}
	})
	return n, found.RangesKnown
}

// Several partitions, runs that overlap and value files are damaged at once, with and without a
// backup, and the damages are random.
func TestManyDamagesInPlace(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	rounds := 5
	switch {
	case os.Getenv("KVD_DAMAGE") == "full":
		rounds = 200
	case testsize.Reduced():
		rounds = 2
	}
	for seed := range rounds {
		if seed%2 == 1 {
			h = newHistory(t)
		} else {
			h = newLayered(t)
		}
		rng := rand.New(rand.NewPCG(7, uint64(seed)))
		for _, backup := range []string{"", "old", "new"} {
			h.inPlace(backup, func(disk *vfs.Mem) {
				h.makeBackup(disk, backup)
				for _, name := range append(h.named(".sst"), h.named(".val")...) {
					content := slices.Clone(h.files[name])
					switch rng.IntN(5) {
					case 0:
						replace(t, disk, name, nil)
					case 1, 2:
						for range 1 + rng.IntN(3) {
							content[rng.IntN(len(content))] ^= 1
						}
						replace(t, disk, name, content)
					case 3:
						replace(t, disk, name, content[:rng.IntN(len(content))])
					}
				}
			})
		}
	}
}

// makeBackup puts a copy of the store beside it: of now, or of half of the history.
func (h *history) makeBackup(disk *vfs.Mem, name string) {
	t := h.t
	switch name {
	case "":
		return
	case "old":
		for file, content := range h.halfway {
			replaceAt(t, disk, name+strings.TrimPrefix(file, damagedDir), content)
		}
	default:
		for file, content := range h.files {
			replaceAt(t, disk, name+strings.TrimPrefix(file, damagedDir), content)
		}
	}
}

func replaceAt(t testing.TB, disk *vfs.Mem, name string, content []byte) {
	require.NoError(t, disk.MkdirAll(path.Dir(name)))
	replace(t, disk, name, content)
}

// From a backup that is as new as the store, everything comes back.
func TestABackupRestoresDamagedRanges(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	damage := func(disk *vfs.Mem) {
		for i, name := range append(h.named(".sst"), h.named(".val")...) {
			content := slices.Clone(h.files[name])
			content[len(content)/3] ^= 1
			if i%3 == 0 {
				content = nil
			}
			replace(t, disk, name, content)
		}
	}
	r, lost := h.inPlace("new", func(disk *vfs.Mem) { h.makeBackup(disk, "new"); damage(disk) })
	require.Zero(t, lost)
	require.Empty(t, r.Losses)
	require.Positive(t, r.Filled)
	r, lost = h.inPlace("old", func(disk *vfs.Mem) { h.makeBackup(disk, "old"); damage(disk) })
	require.NotEmpty(t, r.Losses)
	require.Positive(t, lost)
}

// inPlaceDamage damages two partitions.
func inPlaceDamage(t testing.TB, h *history) *vfs.Mem {
	disk := h.disk.KillImage()
	for _, name := range []string{h.named(".sst")[0], h.named(".val")[1]} {
		content := slices.Clone(h.files[name])
		content[len(content)/3] ^= 1
		replace(t, disk, name, content)
	}
	sst := h.named(".sst")
	replace(t, disk, sst[len(sst)-1], nil)
	syncTree(t, disk, damagedDir)
	require.NoError(t, disk.SyncDir("/"))
	return disk
}

// syncTree makes a directory durable, with all that is in it.
func syncTree(t testing.TB, disk *vfs.Mem, dir string) {
	names, err := disk.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join(dir, name)
		if info, err := disk.Stat(name); err == nil && info.IsDir() {
			syncTree(t, disk, name)
			continue
		}
		f, err := disk.OpenReadWrite(name)
		require.NoError(t, err)
		require.NoError(t, errors.Join(f.Sync(), f.Close()))
	}
	require.NoError(t, disk.SyncDir(dir))
}

// The files that were replaced, copied back, make the store that was damaged.
func TestARepairInPlaceIsUndone(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	disk := inPlaceDamage(t, h)
	before, unreadable := h.itemsOf(disk, damagedDir)
	require.NotEmpty(t, unreadable)
	_, err := repairInPlace(t, disk, "", true)
	require.NoError(t, err)
	for name, content := range filesOf(t, disk, asideDir) {
		if path.Dir(name) != asideDir {
			replace(t, disk, damagedDir+strings.TrimPrefix(name, asideDir), content)
		}
	}
	after, damaged := h.itemsOf(disk, damagedDir)
	require.Equal(t, before, after)
	require.Equal(t, unreadable, damaged)
}

// A crash at any step leaves each partition as it was, or repaired; the repair, made again, ends
// as the first one would have.
func TestARepairInPlaceAtEveryCrash(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	disk := inPlaceDamage(t, h)
	before, unreadable := h.itemsOf(disk, damagedDir)
	whole := disk.KillImage()
	want, err := repairInPlace(t, whole, "", true)
	require.NoError(t, err)
	h.judgeInPlace(whole, want, before, unreadable)
	after, _ := h.itemsOf(whole, damagedDir)

	stride, seen := 11, map[string]int{}
	if testsize.Reduced() {
		stride = 37
	}
	disk.SetHook(func(step vfs.Step) {
		if step.N%stride != 0 {
			return
		}
		image := disk.CrashImage(vfs.CrashPolicies[step.N/stride%len(vfs.CrashPolicies)], rand.New(rand.NewPCG(1, uint64(step.N))))
		now, damaged := h.itemsOf(image, damagedDir)
		for _, key := range h.keys() {
			is, shown := now[key]
			want, wanted := after[key]
			switch {
			case damaged[key]:
				require.True(t, unreadable[key])
			case shown != wanted || !reflect.DeepEqual(want, is): // no assertion: this runs often
				require.Equal(t, want, is, "%q is shown: %t", key, shown)
				require.Equal(t, wanted, shown, key)
			}
		}
		switch len(damaged) {
		case 0:
			seen["repaired"]++
		case len(unreadable):
			seen["as it was"]++
		default:
			seen["in part"]++
		}
		for _, dir := range []string{scratchDir, asideDir} {
			require.NoError(t, removeTree(image, dir))
		}
		r, err := repairInPlace(t, image, "", true)
		require.NoError(t, err)
		require.Equal(t, len(damaged) > 0, r.Damaged() > 0)
		again, _ := h.itemsOf(image, damagedDir)
		require.Equal(t, after, again)
	})
	_, err = repairInPlace(t, disk, "", true)
	disk.SetHook(nil)
	require.NoError(t, err)
	require.NotEmpty(t, seen)
	if !testsize.Reduced() {
		require.Positive(t, seen["as it was"])
		require.Positive(t, seen["repaired"])
		require.Positive(t, seen["in part"])
	}
}

// An operation of the file system that fails ends the repair, or was a read of what is damaged.
// Each partition is as it was or repaired, and the repair can be made again.
func TestARepairInPlaceAtEveryFault(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	stride, failed := 13, 0
	if testsize.Reduced() {
		stride = 97
	}
	damaged := inPlaceDamage(t, h)
	before, unreadable := h.itemsOf(damaged, damagedDir)
	full, err := repairInPlace(t, damaged.KillImage(), "", false)
	require.NoError(t, err)
	for i := 0; ; i += stride {
		disk := damaged.KillImage()
		fsys := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, false))
		r, err := repairInPlace(t, fsys, "", true)
		if !fsys.Fired() {
			require.NoError(t, err)
			break
		}
		if err == nil { // a part that the disk cannot read is one more damage
			h.requireCovered(disk, r)
			continue
		}
		failed++
		now, _ := h.itemsOf(disk, damagedDir)
		for key, item := range before {
			if !reflect.DeepEqual(item, now[key]) { // no assertion: this runs often
				require.Equal(t, item, now[key], "operation %d", i)
			}
		}
		for _, dir := range []string{scratchDir, asideDir} {
			require.NoError(t, removeTree(disk, dir))
		}
		r, err = repairInPlace(t, disk, "", true)
		require.NoError(t, err)
		r.Losses = full.Losses // of partitions that the first attempt had repaired, too
		// If the directory could not be synced after the edit, the partition is repaired, and the files
		// that it replaced are still there until the store is opened.
		options := testOptions(disk)
		options.Partitions = 0
		e, err := engine.Open(damagedDir, options)
		require.NoError(t, err)
		require.NoError(t, e.Close())
		h.judgeInPlace(disk, r, before, unreadable)
	}
	require.Positive(t, failed)
}

// requireCovered checks that every key shows its newest write, or that the report covers it.
func (h *history) requireCovered(disk *vfs.Mem, r *Report) {
	t := h.t
	t.Helper()
	items, damaged := h.itemsOf(disk, damagedDir)
	require.Empty(t, damaged)
	for _, key := range h.keys() {
		item, shows := items[key]
		if want := h.truth(key, kv.MaxSeqNum); want == nil && !shows || want != nil && shows && item.Version == want.version {
			continue
		}
		require.False(t, shows, "%q shows an older version", key)
		require.True(t, r.Covers(keyhash.Partition(keyhash.Sum([]byte(key)), partitions), []byte(key), h.of(key)[0].version), key)
	}
}

// What a repair in place cannot do, it refuses before it changes anything.
func TestWhatIsNotRepairedInPlace(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	for _, kind := range []string{".wal", "MANIFEST-", "CURRENT", descriptor.Name, descriptor.ClockName} {
		names := h.named(kind)
		name := names[0]
		disk := h.disk.KillImage()
		content := slices.Clone(h.files[name])
		content[len(content)/3] ^= 1
		replace(t, disk, name, content)
		_, err := repairInPlace(t, disk, "", true)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.ErrorContains(t, err, "kvd repair SRC DST", name)
	}
	disk := h.disk.KillImage()
	for _, name := range h.named(".wal") {
		replace(t, disk, name, nil)
	}
	for name, content := range h.halfway { // an older copy of the log
		if path.Dir(name) == descriptor.LogDir(damagedDir) {
			replace(t, disk, name, content)
		}
	}
	_, err := repairInPlace(t, disk, "", true)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "the log ends before")

	disk = inPlaceDamage(t, h)
	lock, err := descriptor.Lock(disk, damagedDir)
	require.NoError(t, err)
	_, err = repairInPlace(t, disk, "", true)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, lock.Close())
	for _, dir := range []string{damagedDir, damagedDir + "/x"} {
		_, err = PlanInPlace(t.Context(), disk, damagedDir, InPlaceOptions{Scratch: dir})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		s, err := PlanInPlace(t.Context(), disk, damagedDir, InPlaceOptions{Scratch: scratchDir})
		require.NoError(t, err)
		require.ErrorIs(t, s.Apply(t.Context(), dir), kv.ErrInvalidArgument)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
	}
	require.NoError(t, disk.MkdirAll(scratchDir))
	lock, err = descriptor.LockFilling(disk, scratchDir)
	require.NoError(t, err)
	_, err = repairInPlace(t, disk, "", true)
	require.ErrorIs(t, err, vfs.ErrLocked, "another repair uses the scratch directory")
	_, err = disk.Stat(scratchDir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	require.NoError(t, disk.MkdirAll(asideDir))
	replace(t, disk, asideDir+"/file", []byte("x"))
	_, err = repairInPlace(t, disk, "", true)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "is not empty")

	whole := h.disk.KillImage()
	r, err := repairInPlace(t, whole, "no backup", true)
	require.NoError(t, err)
	require.Zero(t, r.Damaged())
	require.Empty(t, r.Notes)
	require.Equal(t, withoutLock(maps.Clone(h.files)), withoutLock(filesOf(t, whole, damagedDir)))
}

func withoutLock(files map[string][]byte) map[string][]byte {
	delete(files, descriptor.LockPath(damagedDir))
	return files
}
