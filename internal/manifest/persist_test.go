package manifest

import (
	"errors"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// put stores a file durably.
func put(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	require.NoError(t, vfs.WriteAtomic(fsys, path.Join(testDir, name), data))
}

func content(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	data, err := readFile(fsys, path.Join(testDir, name), 1<<20)
	require.NoError(t, err)
	return data
}

// filled returns a directory with two deltas and a base.
func filled(t testing.TB) (*vfs.Mem, *home) {
	fsys := newMem(t)
	h, err := openHome(fsys)
	require.NoError(t, err)
	require.NoError(t, h.flush("a", "m", 1, 10))
	require.NoError(t, h.compact(CompactBase, 0, 1, "a", "m"))
	require.NoError(t, h.flush("c", "z", 11, 20))
	require.NoError(t, h.flush("b", "d", 21, 30))
	return fsys, h
}

func TestAnyDamageIsRefused(t *testing.T) {
	fsys, h := filled(t)
	want := h.contents()
	manifest := ManifestName(h.currentVersion().Num)
	before, err := fsys.List(testDir)
	require.NoError(t, err)
	tries := 0
	refuse := func(what, name string, data []byte) {
		t.Helper()
		tries++
		put(t, fsys, name, data)
		_, err := Load(fsys, testDir, 3)
		require.ErrorIs(t, err, kv.ErrCorrupt, "%s in %s", what, name)
		var damage *kv.CorruptionError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, path.Join(testDir, name), damage.File)
	}
	for _, name := range []string{CurrentName, manifest} {
		whole := content(t, fsys, name)
		for i := range whole {
			for bit := range 8 {
				bad := slices.Clone(whole)
				bad[i] ^= 1 << bit
				refuse("flipped bit", name, bad)
			}
			refuse("truncation", name, whole[:i])
		}
		refuse("more bytes", name, append(slices.Clone(whole), 0))
		refuse("file twice", name, append(slices.Clone(whole), whole...))
		refuse("zeros", name, make([]byte, len(whole)))
		refuse("too long", name, make([]byte, maxCurrent+1))
		put(t, fsys, name, whole)
	}
	t.Logf("%d kinds of damage", tries)
	v, err := Load(fsys, testDir, 3)
	require.NoError(t, err)
	require.Equal(t, want, contents(v))

	for _, name := range before {
		whole := content(t, fsys, name)
		require.NoError(t, fsys.Remove(path.Join(testDir, name)))
		_, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove})
		require.ErrorIs(t, err, kv.ErrCorrupt, "%s is gone", name)
		require.ErrorContains(t, err, name)
		require.ErrorIs(t, Create(fsys, testDir, 3), kv.ErrCorrupt, "%s is gone", name)
		put(t, fsys, name, whole)
		if kind, _ := ParseName(name); kind == FileTable {
			refuse("shorter", name, whole[1:])
			refuse("longer", name, append(slices.Clone(whole), 0))
			put(t, fsys, name, whole)
		}
	}
	after, err := fsys.List(testDir)
	require.NoError(t, err)
	require.Equal(t, before, after, "a refused opening leaves the directory alone")
}

func TestAManifestFromElsewhereIsRefused(t *testing.T) {
	fsys, h := filled(t)
	v := *h.currentVersion()
	name := ManifestName(v.Num)

	other := v
	other.Partition++
	put(t, fsys, name, appendManifest(nil, &other))
	_, err := Load(fsys, testDir, 3)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = Load(fsys, testDir, 4)
	require.ErrorIs(t, err, kv.ErrCorrupt, "CURRENT is of partition 3")

	other = v
	other.Num--
	put(t, fsys, name, appendManifest(nil, &other))
	_, err = Load(fsys, testDir, 3)
	require.ErrorIs(t, err, kv.ErrCorrupt)

	put(t, fsys, name, appendManifest(nil, &v))
	_, err = Load(fsys, testDir, 3)
	require.NoError(t, err)
}

func TestAReadErrorIsNotDamage(t *testing.T) {
	fsys, _ := filled(t)
	for i := 0; ; i++ {
		faulty := faultfs.Wrap(fsys, faultfs.FailAt(i, syscall.EIO, false))
		_, err := Load(faulty, testDir, 3)
		if !faulty.Fired() {
			require.NoError(t, err)
			require.Greater(t, i, 5)
			return
		}
		require.ErrorIs(t, err, syscall.EIO, "operation %d", i)
		require.NotErrorIs(t, err, kv.ErrCorrupt, "operation %d", i)
	}
}

func TestCreateLeavesAPartitionAsItIs(t *testing.T) {
	fsys, h := filled(t)
	require.NoError(t, Create(fsys, testDir, 3))
	v, err := Load(fsys, testDir, 3)
	require.NoError(t, err)
	require.Equal(t, h.contents(), contents(v))
	require.ErrorIs(t, Create(fsys, testDir, 4), kv.ErrCorrupt, "it is another partition's")
}

func TestOpenWithoutCreateIsRefused(t *testing.T) {
	fsys := newMem(t)
	_, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = fsys.Stat(testDir)
	require.ErrorIs(t, err, syscall.ENOENT, "nothing was made")
}

func TestOpenDeletesOnlyWhatIsOursAndDead(t *testing.T) {
	fsys, h := filled(t)
	v := h.currentVersion()
	dead := []string{
		TableName(v.NextFile - 1),      // of a flush that a crash interrupted
		ValuesName(v.NextFile - 3),     // likewise
		ManifestName(v.Num - 1),        // superseded
		ManifestName(v.NextFile - 2),   // never published
		ManifestName(v.Num+2) + ".tmp", // half written
		CurrentName + ".tmp",
	}
	strange := []string{
		TableName(v.NextFile), ValuesName(v.NextFile + 1), ManifestName(v.NextFile + 7), "12.val", "core.99", "notes.txt.tmp", "7.sst",
	}
	for _, name := range append(slices.Clone(dead), strange...) {
		put(t, fsys, name, []byte(name))
	}
	require.NoError(t, fsys.MkdirAll(path.Join(testDir, "backup")))
	require.NoError(t, fsys.MkdirAll(path.Join(testDir, LostFoundName)))
	put(t, fsys, path.Join(LostFoundName, "core.99"), []byte("an older one"))

	var moved []event.SetAside
	listener := &event.Listener{
		FileSetAside:    func(s event.SetAside) { moved = append(moved, s) },
		BackgroundError: func(err error) { t.Error(err) },
	}
	set, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove, Listener: listener})
	require.NoError(t, err)

	for _, name := range dead {
		_, err := fsys.Stat(path.Join(testDir, name))
		require.ErrorIs(t, err, syscall.ENOENT, name)
	}
	require.Len(t, moved, len(strange))
	crashed := fsys.CrashImage(vfs.DropAll, nil)
	for _, name := range strange {
		to := path.Join(LostFoundName, name)
		if name == "core.99" {
			to += ".1"
		}
		require.Contains(t, moved, event.SetAside{From: path.Join(testDir, name), To: path.Join(testDir, to)})
		require.Equal(t, name, string(content(t, crashed, to)))
	}
	require.Equal(t, "an older one", string(content(t, fsys, path.Join(LostFoundName, "core.99"))))
	info, err := fsys.Stat(path.Join(testDir, "backup"))
	require.NoError(t, err)
	require.True(t, info.IsDir())

	num, err := set.NewFileNum()
	require.NoError(t, err)
	require.Greater(t, num, v.NextFile+7, "numbers continue above every file found")
}

// If a file of the Version is missing, CURRENT and its manifest may be an older copy, and files that it
// does not name may be newer ones: Open removes none.
func TestOpenRemovesNothingBesideAMissingFile(t *testing.T) {
	fsys, h := filled(t)
	v := h.currentVersion()
	for t := range v.Tables() {
		h.remove(FileTable, t.Num)
		break
	}
	unnamed := []string{TableName(v.NextFile - 1), ValuesName(v.NextFile - 3), ManifestName(v.NextFile - 2)}
	for _, name := range unnamed {
		put(t, fsys, name, []byte(name))
	}
	_, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove, AllowDamaged: true})
	require.NoError(t, err)
	for _, name := range unnamed {
		require.Equal(t, name, string(content(t, fsys, path.Join(LostFoundName, name))))
	}
}

func TestAFileThatCannotBeClearedAwayIsReported(t *testing.T) {
	fsys, h := filled(t)
	put(t, fsys, TableName(h.currentVersion().NextFile-1), []byte("dead"))
	put(t, fsys, "core.99", []byte("strange"))
	for _, kind := range []faultfs.Kind{faultfs.Remove, faultfs.Rename, faultfs.MkdirAll} {
		var told []error
		faulty := faultfs.Wrap(fsys, faultfs.FailAt(0, syscall.EACCES, true, faultfs.OnKind(kind)))
		set, err := Open(Options{FS: faulty, Dir: testDir, Partition: 3, Obsolete: h.remove,
			Listener: &event.Listener{BackgroundError: func(err error) { told = append(told, err) }}})
		require.NoError(t, err)
		require.Len(t, told, 1, kind)
		assert.ErrorIs(t, told[0], syscall.EACCES)
		ref := set.Acquire()
		assert.Equal(t, h.contents(), contents(ref.Version))
		ref.Release()
		if kind == faultfs.Remove {
			put(t, fsys, "core.99", []byte("strange")) // the first one was moved
		}
		if kind == faultfs.Rename {
			put(t, fsys, TableName(h.currentVersion().NextFile-1), []byte("dead"))
		}
		_ = fsys.Remove(path.Join(testDir, TableName(h.currentVersion().NextFile-1)))
	}
}

// TestAStaleCurrentIsNamed: a CURRENT of an older copy of the directory names a manifest
// that was removed long ago. The error must name CURRENT.
func TestAStaleCurrentIsNamed(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("p"))
	require.NoError(t, Create(fsys, "p", 0))
	require.NoError(t, vfs.WriteAtomic(fsys, "p/"+CurrentName, encodeCurrent(0, 42)))
	_, err := Load(fsys, "p", 0)
	damage, ok := errors.AsType[*kv.CorruptionError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "p/CURRENT", damage.File)
	require.ErrorContains(t, err, ManifestName(42))
}
