package vfs

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

const seeds = 300

// outcomes takes images of m under many seeds and returns what look saw of
// each, as a set.
func outcomes(m *Mem, policy CrashPolicy, look func(*Mem) string) map[string]bool {
	seen := map[string]bool{}
	for seed := range uint64(seeds) {
		seen[look(m.CrashImage(policy, rand.New(rand.NewPCG(seed, 1))))] = true
	}
	return seen
}

func set(keys ...string) map[string]bool {
	s := map[string]bool{}
	for _, k := range keys {
		s[k] = true
	}
	return s
}

func TestCrashPolicyNames(t *testing.T) {
	var names []string
	for _, p := range CrashPolicies {
		names = append(names, p.String())
	}
	assert.Equal(t, []string{"drop-all", "keep-all", "prefix", "reorder", "torn"}, names)
	assert.Equal(t, "crash-policy(9)", CrashPolicy(9).String())
	assert.Panics(t, func() { NewMem().CrashImage(9, nil) })
}

func TestSyncedSurvivesEveryPolicy(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.SyncDir("/"))
	f := createSynced(t, m, "d", "a", "hello")
	require.NoError(t, f.Truncate(4))
	require.NoError(t, f.Sync())
	for _, policy := range CrashPolicies {
		assert.Equal(t, set("hell"), outcomes(m, policy, func(image *Mem) string { return read(t, image, "d/a") }), "%v", policy)
	}
}

func TestUnsyncedBytes(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", "....")
	write(t, f, "1", 0)
	write(t, f, "2", 1)
	write(t, f, "3", 2)
	want := map[CrashPolicy]map[string]bool{
		DropAll: set("...."),
		KeepAll: set("123."),
		Prefix:  set("....", "1...", "12..", "123."),
		Reorder: set("....", "1...", ".2..", "..3.", "12..", "1.3.", ".23.", "123."),
		Torn:    set("....", "1...", ".2..", "..3.", "12..", "1.3.", ".23.", "123."),
	}
	for _, policy := range CrashPolicies {
		assert.Equal(t, want[policy], outcomes(m, policy, func(image *Mem) string { return read(t, image, "a") }), "%v", policy)
	}
	require.Equal(t, "123.", readAll(t, f), "taking images changes nothing")
}

func TestUnsyncedTruncate(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", "abcd")
	require.NoError(t, f.Truncate(2))
	require.NoError(t, f.Truncate(3))
	want := map[CrashPolicy]map[string]bool{
		DropAll: set("abcd"),
		KeepAll: set("ab\x00"),
		Prefix:  set("abcd", "ab", "ab\x00"),
		Reorder: set("abcd", "ab", "abc", "ab\x00"),
		Torn:    set("abcd", "ab", "abc", "ab\x00"),
	}
	for _, policy := range CrashPolicies {
		assert.Equal(t, want[policy], outcomes(m, policy, func(image *Mem) string { return read(t, image, "a") }), "%v", policy)
	}
}

func TestSyncedBytesInAnUnsyncedEntryAreLost(t *testing.T) {
	m := NewMem()
	f := create(t, m, "a", "hello")
	require.NoError(t, f.Sync())
	look := func(image *Mem) string { return read(t, image, "a") }
	assert.Equal(t, set(absent), outcomes(m, DropAll, look))
	assert.Equal(t, set("hello"), outcomes(m, KeepAll, look))
	for _, policy := range []CrashPolicy{Prefix, Reorder, Torn} {
		assert.Equal(t, set(absent, "hello"), outcomes(m, policy, look), "%v", policy)
	}
}

func TestUnsyncedBytesInASyncedEntryAreLost(t *testing.T) {
	m := NewMem()
	create(t, m, "a", "hello")
	require.NoError(t, m.SyncDir("."))
	look := func(image *Mem) string { return read(t, image, "a") }
	assert.Equal(t, set(""), outcomes(m, DropAll, look))
	for _, policy := range []CrashPolicy{Prefix, Reorder} {
		assert.Equal(t, set("", "hello"), outcomes(m, policy, look), "%v", policy)
	}
}

func TestAFileInAnUnsyncedDirectoryIsLost(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	createSynced(t, m, "d", "a", "hello")
	assert.Equal(t, set(absent), outcomes(m, DropAll, func(image *Mem) string { return read(t, image, "d/a") }))
	assert.False(t, m.SyncedBytes("d/a", 0, 5))
	require.NoError(t, m.SyncDir("/"))
	assert.Equal(t, set("hello"), outcomes(m, DropAll, func(image *Mem) string { return read(t, image, "d/a") }))
	assert.True(t, m.SyncedBytes("d/a", 0, 5))
}

// The pointer must not be believed to follow what it points to: two files, and
// a file and an entry, reach the disk in any order.
func TestReorderCrossesFilesAndPrefixDoesNot(t *testing.T) {
	m := NewMem()
	target := createSynced(t, m, ".", "target", "-")
	pointer := createSynced(t, m, ".", "pointer", "-")
	write(t, target, "T", 0)
	write(t, pointer, "P", 0)
	look := func(image *Mem) string { return read(t, image, "target") + read(t, image, "pointer") }
	assert.Equal(t, set("--", "T-", "TP"), outcomes(m, Prefix, look))
	assert.Equal(t, set("--", "T-", "-P", "TP"), outcomes(m, Reorder, look))
	assert.Equal(t, set("--", "T-", "-P", "TP"), outcomes(m, Torn, look))

	require.NoError(t, target.Sync())
	assert.Equal(t, set("T-", "TP"), outcomes(m, Reorder, look))
}

func TestRenameIsAtomic(t *testing.T) {
	for _, dir := range []string{".", "d"} { // in one directory, and across two
		m := NewMem()
		require.NoError(t, m.MkdirAll("d"))
		require.NoError(t, m.SyncDir("."))
		createSynced(t, m, dir, "old", "1")
		createSynced(t, m, ".", "new", "2")
		require.NoError(t, m.Rename(dir+"/old", "new"))
		look := func(image *Mem) string { return read(t, image, dir+"/old") + " " + read(t, image, "new") }
		before, after := "1 2", absent+" 1"
		assert.Equal(t, set(before), outcomes(m, DropAll, look))
		assert.Equal(t, set(after), outcomes(m, KeepAll, look))
		for _, policy := range []CrashPolicy{Prefix, Reorder, Torn} {
			assert.Equal(t, set(before, after), outcomes(m, policy, look), "%v", policy)
		}
		require.NoError(t, m.SyncDir(dir))
		for _, policy := range CrashPolicies {
			assert.Equal(t, set(after), outcomes(m, policy, look), "%v", policy)
		}
	}
}

// The classic: write, rename, no fsync in between. The name is there, the bytes
// are not.
func TestRenameWithoutSyncPublishesAnEmptyFile(t *testing.T) {
	m := NewMem()
	createSynced(t, m, ".", "a", "old")
	create(t, m, "a.tmp", "new")
	require.NoError(t, m.Rename("a.tmp", "a"))
	look := func(image *Mem) string { return read(t, image, "a") }
	assert.Equal(t, set("old", "new"), outcomes(m, Prefix, look))
	assert.Equal(t, set("old", "", "new"), outcomes(m, Reorder, look))
	require.NoError(t, m.SyncDir("."))
	assert.Equal(t, set(""), outcomes(m, DropAll, look))
}

func TestUnsyncedRemoveMayComeBack(t *testing.T) {
	m := NewMem()
	createSynced(t, m, ".", "a", "x")
	require.NoError(t, m.Remove("a"))
	look := func(image *Mem) string { return read(t, image, "a") }
	assert.Equal(t, set("x"), outcomes(m, DropAll, look))
	assert.Equal(t, set(absent), outcomes(m, KeepAll, look))
	assert.Equal(t, set("x", absent), outcomes(m, Reorder, look))
	require.NoError(t, m.SyncDir("."))
	for _, policy := range CrashPolicies {
		assert.Equal(t, set(absent), outcomes(m, policy, look), "%v", policy)
	}
}

// Syncing one directory syncs the other side of a rename, and with it what the
// other directory did before: the order within a directory holds.
func TestSyncDirOfACrossDirectoryRename(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("p"))
	require.NoError(t, m.MkdirAll("q"))
	require.NoError(t, m.SyncDir("/"))
	createSynced(t, m, "p", "a", "moved")
	create(t, m, "q/b", "replaced")
	require.NoError(t, m.Rename("p/a", "q/b"))
	create(t, m, "q/c", "later")
	create(t, m, "root", "apart")
	require.NoError(t, m.SyncDir("p"))
	for _, policy := range []CrashPolicy{DropAll, KeepAll} {
		image := m.CrashImage(policy, nil)
		assert.Equal(t, absent, read(t, image, "p/a"))
		assert.Equal(t, "moved", read(t, image, "q/b"))
		_, err := image.Stat("q/c")
		assert.NoError(t, err)
	}
	assert.Equal(t, absent, read(t, m.CrashImage(DropAll, nil), "root"))
}

// The other side of a rename may itself be one side of a newer rename.
func TestSyncDirOfAChainOfRenames(t *testing.T) {
	m := NewMem()
	for _, dir := range []string{"p", "q", "r"} {
		require.NoError(t, m.MkdirAll(dir))
	}
	require.NoError(t, m.SyncDir("/"))
	createSynced(t, m, "p", "a", "first")
	createSynced(t, m, "q", "b", "second")
	require.NoError(t, m.Rename("p/a", "q/a"))
	require.NoError(t, m.Rename("q/b", "r/b"))
	require.NoError(t, m.SyncDir("p"))
	assert.Equal(t, `/p/ /q/ /q/a="first" /r/ /r/b="second" `, fingerprint(t, m.CrashImage(DropAll, nil)))
}

func TestTornWrite(t *testing.T) {
	m := NewMem()
	old := strings.Repeat("o", 4*sectorBytes)
	f := createSynced(t, m, ".", "a", old)
	write(t, f, strings.Repeat("n", 3*sectorBytes), 100) // touches four sectors, ends after three
	sectors := func(image *Mem) string {
		s := read(t, image, "a")
		require.Len(t, s, len(old))
		var b strings.Builder
		for i := range 4 {
			from, to := i*sectorBytes, (i+1)*sectorBytes
			in := s[max(from, 100):min(to, 100+3*sectorBytes)]
			require.Len(t, strings.Trim(in, in[:1]), 0, "a sector is never torn")
			b.WriteByte(in[0])
		}
		require.Equal(t, strings.Repeat("o", 100), s[:100])
		return b.String()
	}
	assert.Equal(t, set("oooo", "nnnn"), outcomes(m, Reorder, sectors))
	seen := outcomes(m, Torn, sectors)
	for prefix := range 5 {
		assert.Contains(t, seen, strings.Repeat("n", prefix)+strings.Repeat("o", 4-prefix))
	}
	assert.Greater(t, len(seen), 12, "and most of the 16 subsets of four sectors")
}

func TestTornAppend(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", "head")
	write(t, f, strings.Repeat("n", 2*sectorBytes), 4)
	seen := outcomes(m, Torn, func(image *Mem) string {
		s := read(t, image, "a")
		require.Equal(t, "head", s[:4])
		kept := strings.Count(s, "n")
		require.Equal(t, len(s)-4-kept, strings.Count(s, "\x00"))
		return fmt.Sprintf("%d/%d", kept, len(s)-4)
	})
	assert.True(t, seen["0/0"], "missing")
	assert.True(t, seen["508/508"], "cut at a sector")
	assert.True(t, seen["508/1024"], "cut, but with the length of the whole")
	assert.True(t, seen["0/1024"], "nothing but the length")
	assert.True(t, seen["1024/1024"], "whole")
	assert.True(t, seen["512/1020"] || seen["516/1024"], "a hole in the middle")
}

func TestTornZeros(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", strings.Repeat("o", 2*sectorBytes))
	write(t, f, strings.Repeat("\x00", 2*sectorBytes), 0)
	seen := outcomes(m, Torn, func(image *Mem) string { return fmt.Sprint(strings.Count(read(t, image, "a"), "o")) })
	assert.Equal(t, set("0", "512", "1024"), seen)
}

func TestImageIsIndependentAndCountsAsSynced(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/a", "hello")
	_, err := m.Lock("d/LOCK")
	require.NoError(t, err)
	m.SetHook(func(Step) { t.Error("the image must have no hook") })
	image := m.CrashImage(KeepAll, nil)
	m.SetHook(nil)

	assert.Zero(t, image.Steps())
	assert.True(t, image.SyncedBytes("d/a", 0, 5))
	assert.Equal(t, "hello", read(t, image.CrashImage(DropAll, nil), "d/a"))
	l, err := image.Lock("d/LOCK")
	require.NoError(t, err)
	require.NoError(t, l.Close())

	write(t, f, "J", 0)
	g, err := image.OpenReadWrite("d/a")
	require.NoError(t, err)
	write(t, g, "C", 0)
	create(t, image, "d/b", "")
	assert.Equal(t, "Jello", readAll(t, f))
	assert.Equal(t, "Cello", readAll(t, g))
	requireList(t, m, "d", "LOCK", "a")
	requireList(t, image, "d", "LOCK", "a", "b")
	assert.Equal(t, "hello", read(t, image.CrashImage(DropAll, nil), "d/a"))
}

func TestSameSeedSameImage(t *testing.T) {
	for _, policy := range CrashPolicies {
		for seed := range uint64(50) {
			a := fingerprint(t, randomLife(t, 7).CrashImage(policy, rand.New(rand.NewPCG(seed, 2))))
			b := fingerprint(t, randomLife(t, 7).CrashImage(policy, rand.New(rand.NewPCG(seed, 2))))
			require.Equal(t, a, b, "%v, seed %d", policy, seed)
		}
	}
}

// TestPrefixIsAPastState: with no sync at all, an image under Prefix is the
// state after some step, whatever the operations were.
func TestPrefixIsAPastState(t *testing.T) {
	testsize.OneGoroutine(t)
	for life := range uint64(20) {
		m := NewMem()
		past := map[string]bool{}
		m.SetHook(func(s Step) {
			image := m.CrashImage(KeepAll, nil)
			past[fingerprint(t, image)] = true
		})
		randomSteps(t, m, life, false)
		m.SetHook(nil)
		past[fingerprint(t, m)] = true
		for fp := range outcomes(m, Prefix, func(image *Mem) string { return fingerprint(t, image) }) {
			require.True(t, past[fp], "life %d: %s", life, fp)
		}
	}
}

// TestSyncedBytesHoldUnderEveryPolicy: what SyncedBytes promises is there in
// every image, over random lives with syncs and failed syncs.
func TestSyncedBytesHoldUnderEveryPolicy(t *testing.T) {
	promised := 0
	for life := range uint64(60) {
		m := randomLife(t, life)
		var held [][2]string // name, content
		for _, name := range files(t, m, "/") {
			if strings.HasSuffix(name, "/") {
				continue
			}
			s := read(t, m, name)
			if m.SyncedBytes(name, 0, int64(len(s))) {
				held = append(held, [2]string{name, s})
				promised++
			}
		}
		for _, policy := range CrashPolicies {
			for seed := range uint64(20) {
				image := m.CrashImage(policy, rand.New(rand.NewPCG(seed, life)))
				for _, h := range held {
					s := read(t, image, h[0])
					require.True(t, strings.HasPrefix(s, h[1]) && s != absent, "life %d, %v, seed %d: %s", life, policy, seed, h[0])
				}
			}
		}
	}
	require.Greater(t, promised, 20, "the lives must sync enough to say something")
}

func TestSyncedBytes(t *testing.T) {
	m := NewMem()
	assert.False(t, m.SyncedBytes("a", 0, 0), "absent")
	f := createSynced(t, m, ".", "a", "hello")
	assert.True(t, m.SyncedBytes("a", 0, 5))
	assert.True(t, m.SyncedBytes("/a", 1, 3))
	assert.False(t, m.SyncedBytes("a", 0, 6), "behind the end")
	assert.False(t, m.SyncedBytes(".", 0, 0), "a directory")
	assert.False(t, m.SyncedBytes("a/b", 0, 0), "no directory on the way")

	write(t, f, "L", 2)
	assert.True(t, m.SyncedBytes("a", 0, 2))
	assert.False(t, m.SyncedBytes("a", 0, 3))
	assert.True(t, m.SyncedBytes("a", 3, 2))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Truncate(4))
	assert.True(t, m.SyncedBytes("a", 0, 4))
	require.NoError(t, f.Truncate(5))
	assert.False(t, m.SyncedBytes("a", 0, 5))
	require.NoError(t, f.Sync())
	assert.True(t, m.SyncedBytes("a", 0, 5))

	require.NoError(t, m.Rename("a", "b"))
	assert.False(t, m.SyncedBytes("a", 0, 1))
	assert.False(t, m.SyncedBytes("b", 0, 1))
	require.NoError(t, m.SyncDir("/"))
	assert.True(t, m.SyncedBytes("b", 0, 1))
	require.NoError(t, m.Rename("b", "a"))
	require.NoError(t, m.Rename("a", "b"))
	assert.False(t, m.SyncedBytes("b", 0, 1), "there, but a power cut between the renames shows another name")
}

func TestImagesDoNotSeeABufferReused(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", "")
	buf := []byte("one")
	_, err := f.WriteAt(buf, 0)
	require.NoError(t, err)
	copy(buf, "two")
	assert.Equal(t, "one", read(t, m.CrashImage(KeepAll, nil), "a"))
}

func TestDropDirty(t *testing.T) {
	m := NewMem()
	f := createSynced(t, m, ".", "a", "hello")
	write(t, f, "JJ", 0)
	f.(*memFile).DropDirty()

	assert.Equal(t, "JJllo", readAll(t, f), "reads go on to show what the disk has not")
	for _, policy := range CrashPolicies {
		assert.Equal(t, set("hello"), outcomes(m, policy, func(image *Mem) string { return read(t, image, "a") }), "%v", policy)
	}
	assert.False(t, m.SyncedBytes("a", 0, 2))
	assert.True(t, m.SyncedBytes("a", 2, 3))

	write(t, f, "!", 4)
	assert.Equal(t, "hell!", read(t, m.CrashImage(KeepAll, nil), "a"))
	require.NoError(t, f.Sync(), "the second fsync claims success")
	assert.Equal(t, "hell!", read(t, m.CrashImage(DropAll, nil), "a"), "and covers only what came after the first")
	assert.Equal(t, "JJll!", readAll(t, f))
	assert.False(t, m.SyncedBytes("a", 0, 5))
	write(t, f, "JJ", 0)
	require.NoError(t, f.Sync())
	assert.True(t, m.SyncedBytes("a", 0, 5), "written again, it is there")
}

// A failed sync of a directory may drop its changes: the next one claims success, and covers only what
// came after.
func TestDropDirtyEntries(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.MkdirAll("e"))
	createSynced(t, m, "e", "moved", "old")
	createSynced(t, m, "d", "a", "one")
	require.NoError(t, m.SyncDir("/"))
	require.NoError(t, m.SyncDir("d"))
	require.NoError(t, m.SyncDir("e"))

	f, err := m.Create("d/new")
	require.NoError(t, err)
	write(t, f, "two", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, m.Rename("d/a", "d/b"))
	require.NoError(t, m.Rename("e/moved", "d/moved"))
	require.NoError(t, m.DropDirtyEntries("d"))
	for _, policy := range CrashPolicies {
		lists := outcomes(m, policy, func(image *Mem) string { return fmt.Sprint(files(t, image, "/")) })
		assert.Equal(t, set("[/d/ /d/a /e/ /e/moved]"), lists, "%v", policy)
	}
	requireList(t, m, "d", "b", "moved", "new")
	requireList(t, m, "e")
	assert.False(t, m.SyncedBytes("d/new", 0, 3))
	assert.False(t, m.SyncedBytes("d/b", 0, 3))

	killed := m.KillImage()
	for _, fsys := range []*Mem{m, killed} {
		createSynced(t, fsys, "d", "later", "three")
		require.NoError(t, fsys.SyncDir("d"), "the second fsync claims success")
		requireList(t, fsys.CrashImage(DropAll, nil), "d", "a", "later")
		requireList(t, fsys, "d", "b", "later", "moved", "new")
		assert.True(t, fsys.SyncedBytes("d/later", 0, 5))
		assert.False(t, fsys.SyncedBytes("d/new", 0, 3))

		require.NoError(t, fsys.Rename("d/b", "d/c"))
		require.NoError(t, fsys.SyncDir("d"))
		after := fsys.CrashImage(DropAll, nil)
		assert.Equal(t, "one", read(t, after, "d/c"), "renamed again, it has its name")
	}
	require.ErrorIs(t, m.DropDirtyEntries("nothing"), fs.ErrNotExist)
}

// A name that the disk gives to another file than lookups do is not synced, whatever its bytes.
func TestBytesOfADroppedNameAreNotSynced(t *testing.T) {
	m := NewMem()
	createSynced(t, m, "/", "a", "same")
	require.NoError(t, m.SyncDir("/"))
	require.True(t, m.SyncedBytes("a", 0, 4))
	createSynced(t, m, "/", "b", "same")
	require.NoError(t, m.Rename("b", "a"))
	require.NoError(t, m.DropDirtyEntries("/"))
	require.False(t, m.SyncedBytes("a", 0, 4))
}

func TestKillImage(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.SyncDir("/"))
	f := createSynced(t, m, "d", "a", "hello")
	write(t, f, "J", 0)
	lost := createSynced(t, m, "d", "lost", "hello")
	write(t, lost, "J", 0)
	lost.(*memFile).DropDirty()
	createSynced(t, m, "d", "gone", "x")
	require.NoError(t, m.Remove("d/gone"))
	require.NoError(t, m.Rename("d/lost", "d/found"))
	_, err := m.Lock("d/LOCK")
	require.NoError(t, err)

	image := m.KillImage()
	requireList(t, image, "d", "LOCK", "a", "found")
	assert.Equal(t, "Jello", read(t, image, "d/a"))
	assert.Equal(t, "Jello", read(t, image, "d/found"))
	after := image.CrashImage(DropAll, nil)
	requireList(t, after, "d", "a", "gone", "lost")
	assert.Equal(t, "hello", read(t, after, "d/a"))
	assert.Equal(t, "hello", read(t, after, "d/lost"))

	g, err := image.OpenReadWrite("d/a")
	require.NoError(t, err)
	write(t, g, "C", 0)
	require.NoError(t, g.Sync())
	assert.Equal(t, "Jello", readAll(t, f))
	assert.Equal(t, "hello", read(t, m.CrashImage(DropAll, nil), "d/a"))
	assert.Equal(t, "Cello", read(t, image.CrashImage(DropAll, nil), "d/a"))
	l, err := image.Lock("d/LOCK")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.Equal(t, fingerprint(t, m.CrashImage(DropAll, nil)), fingerprint(t, m.KillImage().CrashImage(DropAll, nil)))

	u, err := m.Usage("/")
	require.NoError(t, err)
	before := u.Free
	u, err = image.Usage("/")
	require.NoError(t, err)
	assert.Equal(t, before+1, u.Free, "the removed file is no longer held open")
}

// randomLife returns a Mem after random operations, some of them syncs.
func randomLife(t testing.TB, seed uint64) *Mem {
	m := NewMem()
	randomSteps(t, m, seed, true)
	return m
}

func randomSteps(t testing.TB, m *Mem, seed uint64, syncs bool) {
	rng := rand.New(rand.NewPCG(seed, 3))
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.MkdirAll("d/e"))
	dirs := []string{"/", "d", "d/e"}
	randomName := func() string { return dirs[rng.IntN(3)] + "/" + string(rune('a'+rng.IntN(3))) }
	open := map[string]File{} // by content identity, not by name
	for range 60 {
		name := randomName()
		kinds := 7
		if !syncs {
			kinds = 5
		}
		switch rng.IntN(kinds) {
		case 0:
			if f, err := m.Create(name); err == nil {
				open[name] = f
			}
		case 1, 2:
			if f := open[name]; f != nil {
				write(t, f, fmt.Sprint(rng.IntN(1000)), rng.Int64N(2000))
			}
		case 3:
			if f := open[name]; f != nil && rng.IntN(2) == 0 {
				require.NoError(t, f.Truncate(rng.Int64N(2000)))
			} else if err := m.Remove(name); err == nil {
				delete(open, name)
			}
		case 4:
			other := randomName()
			if err := m.Rename(name, other); err == nil && name != other {
				open[other] = open[name]
				delete(open, name)
			}
		case 5:
			if f := open[name]; f != nil {
				if rng.IntN(8) == 0 {
					f.(*memFile).DropDirty()
				} else {
					require.NoError(t, f.Sync())
				}
			}
		case 6:
			require.NoError(t, m.SyncDir(dirs[rng.IntN(3)]))
		}
	}
}

// files returns the names of all files below dir.
func files(t testing.TB, fsys FS, dir string) []string {
	names, err := fsys.List(dir)
	require.NoError(t, err)
	var result []string
	for _, name := range names {
		name = strings.TrimSuffix(dir, "/") + "/" + name
		info, err := fsys.Stat(name)
		require.NoError(t, err)
		if info.IsDir() {
			result = append(result, name+"/")
			result = append(result, files(t, fsys, name)...)
		} else {
			result = append(result, name)
		}
	}
	return result
}

// fingerprint describes every file and directory of fsys.
func fingerprint(t testing.TB, fsys FS) string {
	var b strings.Builder
	for _, name := range files(t, fsys, "/") {
		b.WriteString(name)
		if !strings.HasSuffix(name, "/") {
			fmt.Fprintf(&b, "=%q", read(t, fsys, name))
		}
		b.WriteByte(' ')
	}
	return b.String()
}
