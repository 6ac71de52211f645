package manifest

import (
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// values describes a value file of n values of 10 bytes each.
func values(num kv.FileNum, n uint64) kv.ValueFileMeta {
	return kv.ValueFileMeta{Num: num, Size: 18*n + 56, Values: n, Bytes: 10 * n}
}

// needs makes t need the given numbers of values of value files.
func needs(t kv.TableMeta, of map[kv.FileNum]uint64) kv.TableMeta {
	for _, file := range slices.Sorted(maps.Keys(of)) {
		t.Values = append(t.Values, kv.ValueRef{File: file, Values: of[file], Bytes: 10 * of[file]})
	}
	return t
}

type refs = map[kv.FileNum]uint64

// withValues is the example with value files 60 and 61, of which 3 and 4 of 5 values
// are needed.
func withValues() *Version {
	v := example()
	v.Values = []kv.ValueFileMeta{values(60, 5), values(61, 5)}
	v.Deltas[0][0] = needs(v.Deltas[0][0], refs{61: 3})
	v.Deltas[1][0] = needs(v.Deltas[1][0], refs{60: 1, 61: 1})
	v.Base[1] = needs(v.Base[1], refs{60: 2})
	return v
}

func TestGarbageIsKnownExactly(t *testing.T) {
	v := withValues()
	require.NoError(t, v.check())
	require.Equal(t, map[kv.FileNum]kv.ValueRef{60: {File: 60, Values: 3, Bytes: 30}, 61: {File: 61, Values: 4, Bytes: 40}}, v.NeededValues())
	all, garbage := v.ValueBytes()
	require.EqualValues(t, 100, all)
	require.EqualValues(t, 30, garbage)
	require.EqualValues(t, 2*(18*5+56), v.ValueFileBytes())
	require.Contains(t, v.String(), "values 000060: 3 of 5 values needed, 30 of 50 B")
}

func TestValueFilesFollowTheTablesThatNeedThem(t *testing.T) {
	for name, c := range map[string]struct {
		edit Edit
		want []kv.FileNum
	}{
		"a flush brings one": {
			Edit{Kind: Flush, Added: Run{needs(table(50, "a", "z", 96, 99), refs{51: 4})}, Values: []kv.ValueFileMeta{values(51, 4)}, FlushedSeq: 100},
			[]kv.FileNum{51, 60, 61}},
		"a flush without values": {
			Edit{Kind: Flush, Added: Run{table(50, "a", "z", 96, 99)}, FlushedSeq: 100},
			[]kv.FileNum{60, 61}},
		"pointers move": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{needs(table(50, "a", "m", 40, 90), refs{60: 1, 61: 4})}},
			[]kv.FileNum{60, 61}},
		"some are dropped": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{needs(table(50, "a", "m", 40, 90), refs{61: 1})}},
			[]kv.FileNum{60, 61}},
		"the last are dropped": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{needs(table(50, "a", "m", 40, 90), refs{60: 1})}},
			[]kv.FileNum{60}},
		"values are rewritten": {
			Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{needs(table(50, "a", "m", 40, 90), refs{51: 5})}, Values: []kv.ValueFileMeta{values(51, 5)}},
			[]kv.FileNum{51, 60}},
		"everything is dropped": {
			Edit{Kind: CompactBase, Removed: edits{30, 20, 21, 10, 11, 1, 2, 3}},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := withValues().Apply(c.edit)
			require.NoError(t, err)
			var nums []kv.FileNum
			for _, m := range got.Values {
				nums = append(nums, m.Num)
			}
			assert.Equal(t, c.want, nums)
		})
	}
}

func TestEditsOfValuesThatDoNotFit(t *testing.T) {
	flush := func(of refs, files ...kv.ValueFileMeta) Edit {
		return Edit{Kind: Flush, Added: Run{needs(table(50, "a", "z", 96, 99), of)}, Values: files, FlushedSeq: 100}
	}
	merge := func(of refs, files ...kv.ValueFileMeta) Edit {
		return Edit{Kind: CompactDeltas, Removed: edits{20, 30, 21}, Added: Run{needs(table(50, "a", "m", 40, 90), of)}, Values: files}
	}
	for name, c := range map[string]struct {
		rule string
		edit Edit
	}{
		"a flush points into an old file":     {"E6", flush(refs{60: 1})},
		"a flush needs half of its file":      {"E6", flush(refs{51: 2}, values(51, 4))},
		"a flush points to nowhere":           {"V8", flush(refs{51: 2})},
		"a file that nothing needs":           {"E6", flush(nil, values(51, 4))},
		"a merge needs more than before":      {"E6", merge(refs{60: 2, 61: 4})},
		"a merge points into a file of other": {"V8", merge(refs{62: 1})},
		"a merge needs part of its new file":  {"E6", merge(refs{51: 4}, values(51, 5))},
		"a number twice":                      {"V3", flush(refs{50: 4}, values(50, 4))},
		"a number too large":                  {"V3", flush(refs{100: 4}, values(100, 4))},
		"a file that was there":               {"E6", merge(refs{60: 1, 61: 4}, values(60, 5))},
	} {
		_, err := withValues().Apply(c.edit)
		require.ErrorContains(t, err, c.rule, name)
	}
}

// valueFile makes a value file as a flush does.
func (h *home) valueFile(t testing.TB, n uint64) kv.ValueFileMeta {
	num, err := h.NewFileNum()
	require.NoError(t, err)
	m := values(num, n)
	put(t, h.fs, ValuesName(num), make([]byte, m.Size))
	return m
}

func TestAValueFileGoesWithItsLastReader(t *testing.T) {
	fsys, h := filled(t)
	m := h.valueFile(t, 10)
	meta, err := h.write("a", "z", 31, 40)
	require.NoError(t, err)
	meta = needs(meta, refs{m.Num: 10})
	short := m
	short.Size++
	require.ErrorContains(t, h.Install(Edit{Kind: Flush, Added: Run{meta}, Values: []kv.ValueFileMeta{short}, FlushedSeq: 40}), "want")
	require.NoError(t, h.Install(Edit{Kind: Flush, Added: Run{meta}, Values: []kv.ValueFileMeta{m}, FlushedSeq: 40}))

	there := func() bool {
		_, err := fsys.Stat(path.Join(testDir, ValuesName(m.Num)))
		return err == nil
	}
	reader := h.Acquire()
	require.NoError(t, h.Install(Edit{Kind: CompactDeltas, Removed: edits{meta.Num}}))
	require.Empty(t, h.currentVersion().Values)
	require.True(t, there(), "a Ref names it")
	reader.Release()
	require.False(t, there())
}

func TestValueFilesAtOpen(t *testing.T) {
	fsys, h := filled(t)
	m := h.valueFile(t, 10)
	meta, err := h.write("a", "z", 31, 40)
	require.NoError(t, err)
	require.NoError(t, h.Install(Edit{Kind: Flush, Added: Run{needs(meta, refs{m.Num: 10})}, Values: []kv.ValueFileMeta{m}, FlushedSeq: 40}))
	left := h.valueFile(t, 3) // from a flush that a crash interrupted
	future := ValuesName(h.currentVersion().NextFile + 1)
	put(t, fsys, future, []byte("not ours"))

	var aside []string
	set, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove,
		Listener: &event.Listener{FileSetAside: func(s event.SetAside) { aside = append(aside, path.Base(s.From)) }}})
	require.NoError(t, err)
	require.Equal(t, []kv.ValueFileMeta{m}, set.currentVersion().Values)
	require.Equal(t, []string{future}, aside)
	names, err := fsys.List(testDir)
	require.NoError(t, err)
	require.Contains(t, names, ValuesName(m.Num))
	require.NotContains(t, names, ValuesName(left.Num))

	whole := content(t, fsys, ValuesName(m.Num))
	for what, damage := range map[string]func(name string){
		"shorter": func(name string) { put(t, fsys, name, whole[1:]) },
		"longer":  func(name string) { put(t, fsys, name, append(slices.Clone(whole), 0)) },
		"gone":    func(name string) { require.NoError(t, fsys.Remove(name)) },
	} {
		name := ValuesName(m.Num)
		if what == "gone" {
			name = path.Join(testDir, name)
		}
		damage(name)
		_, err = Load(fsys, testDir, 3)
		require.ErrorIs(t, err, kv.ErrCorrupt, what)
		require.ErrorContains(t, err, ValuesName(m.Num), what)
		put(t, fsys, ValuesName(m.Num), whole)
	}
	require.ErrorIs(t, Create(lostCurrent(t, fsys), testDir, 3), kv.ErrCorrupt)
}

// lostCurrent returns a copy of the disk with only the value files.
func lostCurrent(t testing.TB, fsys *vfs.Mem) vfs.FS {
	disk := fsys.KillImage()
	names, err := disk.List(testDir)
	require.NoError(t, err)
	for _, name := range names {
		if kind, _ := ParseName(name); kind != FileValues && kind != FileLostFound {
			require.NoError(t, disk.Remove(path.Join(testDir, name)))
		}
	}
	return disk
}
