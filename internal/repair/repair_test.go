package repair

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A store without damage is copied whole: its tables byte by byte, its log record by record.
func TestAHealthyStoreIsCopiedWhole(t *testing.T) {
	h := newHistory(t)
	disk := h.disk.KillImage()
	r := h.judge(disk, Options{})
	requireNothingLost(t, r)
	require.Zero(t, r.Damaged())
	tables := 0
	for name, content := range h.files {
		if ext := path.Ext(name); ext == ".sst" || ext == ".val" || strings.Contains(name, "MANIFEST") {
			require.Equal(t, content, contentOf(t, disk, repairedDir+strings.TrimPrefix(name, damagedDir)), name)
			tables++
		}
	}
	require.Greater(t, tables, 3*partitions, "the store has tables, value files and manifests")
	for _, name := range []string{descriptor.Name, descriptor.ClockName} {
		require.Equal(t, h.files[path.Join(damagedDir, name)], contentOf(t, disk, path.Join(repairedDir, name)))
	}
	require.NotZero(t, r.Records)
}

// named returns the files of the store whose name has a suffix or a prefix, in order.
func (h *history) named(part string) (names []string) {
	for name := range h.files {
		if base := path.Base(name); strings.HasPrefix(base, part) || strings.HasSuffix(base, part) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	require.NotEmpty(h.t, names, part)
	return names
}

// TestEveryKindOfDamage damages every kind of file in every way that disks do. With
// KVD_DAMAGE=full it does so at many places of every file.
func TestEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	full := os.Getenv("KVD_DAMAGE") == "full"
	count := 0
	try := func(name string, content []byte, what string) {
		t.Helper()
		count++
		ok := t.Run(strings.TrimPrefix(name, damagedDir+"/")+" "+what, func(t *testing.T) {
			one := *h
			one.t = t
			one.repaired(func(disk *vfs.Mem) { replace(t, disk, name, content) })
		})
		require.True(t, ok)
	}
	for _, kind := range []string{".wal", ".sst", ".val", manifest.CurrentName, "MANIFEST-", descriptor.Name, descriptor.ClockName} {
		missing := 0
		h.missing = &missing
		names := h.named(kind)
		slices.Reverse(names) // the newest first: tables do not have yet what is in the last segments
		for i, name := range names {
			content := h.files[name]
			try(name, nil, "removed")
			n := len(content)
			places := []int{(n*3/7 + 31*i) % n}
			if full {
				places = nil
				for at := i % 37; at < n; at += 37 {
					places = append(places, at)
				}
			}
			for _, at := range places {
				flipped := slices.Clone(content)
				flipped[at] ^= 1 << (at % 8)
				try(name, flipped, "flipped")
				try(name, slices.Clip(content[:at]), "cut")
			}
			zeroed := slices.Clone(content)
			clear(zeroed[n/2&^511 : min(n, n/2&^511+512)])
			try(name, zeroed, "zeroed")
			other := h.files[names[(i+1)%len(names)]]
			try(name, other, "replaced")
			if from := min(n, len(other)) / 2 &^ 511; from+512 <= min(n, len(other)) {
				mixed := slices.Clone(content)
				copy(mixed[from:from+512], other[from:])
				try(name, mixed, "swapped")
			}
			if !full && (i == 2 || testsize.Reduced()) {
				break
			}
		}
		switch kind {
		case ".wal", ".sst", ".val":
			if !testsize.Reduced() {
				require.Positive(t, missing, "no damage of %s costs anything, so the test proves little", kind)
			}
		default:
			require.Zero(t, missing, "only log, tables and value files hold writes: %s", kind)
		}
	}
	t.Logf("%d damages", count)
}

// What is no part of the store, or can be made again, is no loss.
func TestDamageThatLosesNothing(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	table := h.named(".sst")[0]
	inFooter := slices.Clone(h.files[table])
	inFooter[len(inFooter)-30] ^= 1
	tail := slices.Clone(h.files[table])
	clear(tail[len(tail)-200:]) // properties and footer
	versions := map[string][]byte{}
	for _, name := range []string{descriptor.Path(damagedDir), descriptor.ClockPath(damagedDir)} {
		versions[name] = slices.Clone(h.files[name])
		versions[name][9] ^= 1
	}
	other := descriptor.Descriptor{StoreID: 1, Partitions: partitions}
	for what, damage := range map[string]func(disk *vfs.Mem){
		"another STORE": func(disk *vfs.Mem) { replace(t, disk, descriptor.Path(damagedDir), other.Encode()) },
		"LOCK and BALLAST": func(disk *vfs.Mem) {
			replace(t, disk, descriptor.LockPath(damagedDir), nil)
			replace(t, disk, descriptor.BallastPath(damagedDir), []byte("x"))
		},
		"format versions": func(disk *vfs.Mem) {
			for name, content := range versions {
				replace(t, disk, name, content)
			}
		},
		"a foreign file": func(disk *vfs.Mem) { replace(t, disk, damagedDir+"/p-0000/core", []byte("x")) },
		"STORE":          func(disk *vfs.Mem) { replace(t, disk, descriptor.Path(damagedDir), nil) },
		"CURRENT":        func(disk *vfs.Mem) { replace(t, disk, h.named(manifest.CurrentName)[1], []byte("x")) },
		"a footer":       func(disk *vfs.Mem) { replace(t, disk, table, inFooter) },
		"a tail":         func(disk *vfs.Mem) { replace(t, disk, table, tail) },
	} {
		r := h.repaired(damage)
		require.Empty(t, r.Losses, what)
	}
}

// Everything at once: both ends of each file of the log and of each table are damaged, and
// every manifest is lost.
func TestManyDamages(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	r := h.repaired(func(disk *vfs.Mem) {
		for _, name := range append(h.named(".sst"), h.named(".wal")...) {
			content := slices.Clone(h.files[name])
			content[10] ^= 1
			content[len(content)*2/3] ^= 1
			replace(t, disk, name, content)
		}
		for _, name := range h.named("MANIFEST-") {
			replace(t, disk, name, nil)
		}
		replace(t, disk, descriptor.Path(damagedDir), nil)
	})
	require.NotZero(t, r.Entries, "whole blocks are kept")
	require.NotZero(t, r.Records, "whole frames are kept")
}

// A store whose process was killed is repaired as recovery would open it.
func TestAKilledStore(t *testing.T) {
	h := newHistory(t)
	h.open()
	for i := 200; i < 210; i++ {
		h.put(i, "before the kill")
	}
	disk := h.disk.KillImage()
	h.close()
	requireNothingLost(t, h.judge(disk.KillImage(), Options{}))

	segments := h.named(".wal")
	last := contentOf(t, disk, segments[len(segments)-1])
	last[len(last)/2] ^= 1
	replace(t, disk, segments[len(segments)-1], last)
	h.judge(disk, Options{})
}

// Of a store that was killed, no frame says that writes without a sync were synced. A damaged
// frame among them looks like a torn one, but whole frames follow it: these are used, and the
// report has the damaged one.
func TestDamageOfWritesThatWereNotSynced(t *testing.T) {
	h := newHistory(t)
	h.open()
	for i := 200; i < 210; i++ {
		h.put(i, "before the kill")
	}
	disk := h.disk.KillImage()
	h.close()
	log := filesOf(t, disk, descriptor.LogDir(damagedDir))
	last := slices.Max(slices.Collect(maps.Keys(log)))
	content := log[last]
	at := bytes.Index(content, []byte(valueOf(202, "before the kill")))
	require.Positive(t, at)
	content[at] ^= 1
	replace(t, disk, last, content)
	r := h.judge(disk, Options{})
	require.True(t, r.Lost())
	for i := 203; i < 210; i++ {
		require.NotContains(t, lostVersions(r), h.of(keyOf(i))[0].version, "the frames after it are whole")
	}
}

// lostVersions returns the versions that losses of fewer than 100 versions name.
func lostVersions(r *Report) (all []kv.SeqNum) {
	for _, l := range r.Losses {
		for v := l.FirstVersion; l.LastVersion-l.FirstVersion < 100 && v <= l.LastVersion; v++ {
			all = append(all, v)
		}
	}
	return all
}

// An old copy of the log ends in order, but before what tables hold.
func TestAnOldLogBesideNewTables(t *testing.T) {
	h := newHistory(t)
	h.disk = h.disk.KillImage()
	old := h.files
	h.open()
	h.batch(0, 50, "after the copy")
	require.NoError(t, h.e.Flush(t.Context()))
	h.batch(0, 50, "not flushed")
	h.close()
	h.closed()
	disk := h.disk.KillImage()
	for _, name := range h.named(".wal") {
		replace(t, disk, name, old[name])
	}
	r := h.judge(disk, Options{})
	require.True(t, r.Lost())
}

// A sector that the disk cannot read costs what is in it, and the report gives the error.
func TestASectorThatCannotBeRead(t *testing.T) {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	h.batch(0, 1000, "first")
	require.NoError(t, h.e.CompactAll(t.Context()))
	h.close()
	h.closed()
	table := h.named(".sst")[0]
	const from, to = sectorBytes, 2 * sectorBytes
	require.Greater(t, len(h.files[table]), to)
	disk := h.disk.KillImage()
	fsys := faultfs.Wrap(disk, faultfs.FailAt(0, syscall.EIO, true, func(op faultfs.Op) bool {
		return op.Kind == faultfs.Read && op.Name == table && op.Off < to && from < op.Off+int64(op.Len)
	}))
	r, err := Run(t.Context(), fsys, damagedDir, repairedDir, Options{})
	require.NoError(t, err)
	require.NotEmpty(t, r.Losses)
	h.requireRepaired(disk, r)
	i := slices.IndexFunc(r.Files, func(f File) bool { return path.Join(damagedDir, f.Path) == table })
	require.Positive(t, r.Files[i].Blocks, "the other blocks are kept")
	require.True(t, slices.ContainsFunc(r.Files[i].Damage, func(d Damage) bool {
		return d.Offset == from && d.Bytes == to-from && strings.Contains(d.Reason, syscall.EIO.Error())
	}), "%+v", r.Files[i])
}

// A target must be empty, and must not lie in the damaged store.
func TestTargetsThatAreRefused(t *testing.T) {
	h := newHistory(t)
	disk := h.disk.KillImage()
	replace(t, disk, "other/file", nil)
	require.NoError(t, disk.MkdirAll("other"))
	replace(t, disk, "other/file", []byte("x"))
	for _, target := range []string{damagedDir, damagedDir + "/p-0000/new", "other"} {
		_, err := Run(t.Context(), disk, damagedDir, target, Options{})
		require.ErrorIs(t, err, kv.ErrInvalidArgument, target)
	}
	_, err := Run(t.Context(), disk, "other", repairedDir, Options{})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "no store is here")

	// Another repair is at work there: that it has not ended is no reason to remove the directory.
	require.NoError(t, disk.MkdirAll(repairedDir))
	replace(t, disk, path.Join(repairedDir, descriptor.RepairingName), []byte("x"))
	lock, err := descriptor.LockFilling(disk, repairedDir)
	require.NoError(t, err)
	_, err = Run(t.Context(), disk, damagedDir, repairedDir, Options{})
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, lock.Close())
	_, err = Run(t.Context(), disk, damagedDir, repairedDir, Options{})
	require.ErrorContains(t, err, "a repair that was interrupted")
}

// A directory that was being filled when that was interrupted is not taken for a damaged store: what
// is not there yet would look like something that never was.
func TestWhatIsNotFilledIsNotRepaired(t *testing.T) {
	h := newHistory(t)
	for _, marker := range []string{descriptor.RestoringName, descriptor.RepairingName} {
		disk := h.disk.KillImage()
		replace(t, disk, descriptor.Path(damagedDir), nil)
		replace(t, disk, path.Join(damagedDir, marker), []byte("x"))
		_, err := Run(t.Context(), disk, damagedDir, repairedDir, Options{})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, marker)
		_, err = disk.Stat(repairedDir)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = repairInPlace(t, disk, "", true)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
	}
}

// Without STORE and all partitions but the first, one partition would fit, and nothing be missing.
func TestPartitionsThatAreGoneAreMissed(t *testing.T) {
	t.Parallel()
	h := newPlain(t, "first", 300)
	r := h.repaired(func(disk *vfs.Mem) {
		replace(t, disk, descriptor.Path(damagedDir), nil)
		for id := 1; id < partitions; id++ {
			require.NoError(t, removeTree(disk, descriptor.PartitionDir(damagedDir, id)))
		}
	})
	require.Equal(t, partitions, r.Partitions)
	require.True(t, r.Lost())
}

// What a newer kvd wrote is not damage. Nothing is taken for it.
func TestANewerVersionIsRefused(t *testing.T) {
	h := newHistory(t)
	for _, name := range []string{descriptor.Path(damagedDir), descriptor.ClockPath(damagedDir), h.named("MANIFEST-")[0]} {
		disk := h.disk.KillImage()
		content := slices.Clone(h.files[name])
		content[8] = 99 // the format version
		sum := len(content) - 4
		if strings.Contains(name, "MANIFEST-") {
			sum = 12
		}
		binary.LittleEndian.PutUint32(content[sum:], crc32.Checksum(content[:sum], crc32.MakeTable(crc32.Castagnoli)))
		replace(t, disk, name, content)
		_, err := Run(t.Context(), disk, damagedDir, repairedDir, Options{})
		require.ErrorIs(t, err, kv.ErrUnsupportedVersion, name)
		require.ErrorContains(t, err, "holds an unfinished repair")
		_, err = disk.Stat(descriptor.Path(repairedDir))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// A running server holds the store.
func TestAStoreThatIsOpenIsRefused(t *testing.T) {
	h := newHistory(t)
	h.disk = h.disk.KillImage()
	h.open()
	_, err := Run(t.Context(), h.disk, damagedDir, repairedDir, Options{})
	require.ErrorIs(t, err, vfs.ErrLocked)
	h.close()
}
