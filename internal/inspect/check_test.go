package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

const storePartitions = 2

// newStore creates a store with deltas, a base, and writes that are only in the log,
// and closes it cleanly.
func newStore(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	e := openStore(t, fsys)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			_, err := e.Put(t.Context(), fmt.Appendf(nil, "key/%04d", i), []byte(strings.Repeat("v", i%50)), kv.WriteOptions{})
			require.NoError(t, err)
		}
	}
	put(0, 1000)
	require.NoError(t, e.CompactAll(t.Context()))
	put(500, 510) // too little to be compacted into the base
	require.NoError(t, e.Flush(t.Context()))
	put(990, 1020)
	require.NoError(t, e.Close())
	return fsys
}

func openStore(t *testing.T, fsys vfs.FS) *engine.Engine {
	t.Helper()
	e, err := engine.Open("data", engine.Options{FS: fsys, Partitions: storePartitions, SegmentBytes: 1 << 20})
	require.NoError(t, err)
	return e
}

func isDamage(err error) bool {
	return errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion)
}

func check(t *testing.T, fsys vfs.FS) *Report {
	t.Helper()
	r, err := Check(t.Context(), fsys, "data", nil, nil)
	require.NoError(t, err)
	return r
}

func TestAWholeStoreIsWhole(t *testing.T) {
	fsys := newStore(t)
	var last, total int64
	r, err := Check(t.Context(), fsys, "data", nil, func(done, of int64) {
		require.GreaterOrEqual(t, done, last)
		require.LessOrEqual(t, done, of)
		last, total = done, of
	})
	require.NoError(t, err)
	require.NoError(t, r.Err())
	assert.Equal(t, total, last, "progress ends at the end")
	assert.Equal(t, total, r.Bytes)
	assert.Empty(t, r.Damaged())
	assert.Equal(t, storePartitions, r.Partitions)
	assert.EqualValues(t, 1040, r.LastSeq)
	assert.Positive(t, r.Records)
	kinds := map[Kind]int{}
	for _, f := range r.Files {
		kinds[f.Kind]++
		assert.Equal(t, "ok", f.Status, f.Path)
		assert.Empty(t, f.Note, f.Path)
	}
	assert.Equal(t, 1, kinds[KindStore])
	assert.Equal(t, 1, kinds[KindLock])
	assert.Equal(t, storePartitions, kinds[KindMarker])
	assert.Equal(t, storePartitions, kinds[KindManifest])
	assert.Equal(t, r.Tables, kinds[KindDelta]+kinds[KindBase])
	assert.Positive(t, kinds[KindDelta])
	assert.Positive(t, kinds[KindBase])
	assert.Positive(t, kinds[KindLog])
	assert.Zero(t, kinds[KindOther])
	assert.EqualValues(t, 1010, r.Entries)
}

func TestCheckChangesNothing(t *testing.T) {
	fsys := newStore(t)
	before := contents(t, fsys)
	check(t, fsys)
	assert.Equal(t, before, contents(t, fsys))
}

// contents returns every file of the store except LOCK, which contains a pid.
func contents(t *testing.T, fsys vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range check(t, fsys).Files {
		if f.Kind != KindLock && f.Kind != KindBallast {
			b, err := readSmall(fsys, path.Join("data", f.Path))
			require.NoError(t, err)
			all[f.Path] = string(b)
		}
	}
	return all
}

// needed returns the files that a store cannot do without.
func needed(r *Report) (files []File) {
	for _, f := range r.Files {
		if f.Kind != KindLock && f.Kind != KindBallast && f.Kind != KindOther {
			files = append(files, f)
		}
	}
	return files
}

// damagedPaths returns the files in which a report found damage.
func damagedPaths(r *Report) (paths []string) {
	for _, f := range r.Damaged() {
		paths = append(paths, f.Path)
	}
	return paths
}

func TestEveryMissingFileIsMissed(t *testing.T) {
	whole := newStore(t)
	for _, f := range needed(check(t, whole)) {
		fsys := whole.KillImage()
		require.NoError(t, fsys.Remove(path.Join("data", f.Path)))
		r := check(t, fsys)
		require.True(t, isDamage(r.Err()), "%s: %v", f.Path, r.Err())
		if f.Kind != KindLog {
			assert.Contains(t, damagedPaths(r), f.Path)
		}
	}
}

func TestEveryCutIsFound(t *testing.T) {
	whole := newStore(t)
	for _, f := range needed(check(t, whole)) {
		for _, left := range []int64{0, 1, f.Bytes / 2, f.Bytes - 1} {
			fsys := whole.KillImage()
			cut, err := fsys.OpenReadWrite(path.Join("data", f.Path))
			require.NoError(t, err)
			require.NoError(t, cut.Truncate(left))
			require.NoError(t, cut.Close())
			r := check(t, fsys)
			require.True(t, isDamage(r.Err()), "%s cut to %d: %v", f.Path, left, r.Err())
			assert.Contains(t, damagedPaths(r), f.Path, "cut to %d", left)
		}
	}
}

// Check finds every flipped byte, and finds whatever makes the engine refuse to open
// the store.
func TestEveryFlippedByteIsFoundAndNothingElseIsBlamed(t *testing.T) {
	whole := newStore(t)
	rng := rand.New(rand.NewPCG(1, 2))
	flips := 40
	if testsize.Reduced() {
		flips = 5
	}
	for _, f := range needed(check(t, whole)) {
		for range flips {
			offset := rng.Int64N(f.Bytes)
			fsys := whole.KillImage()
			flipByte(t, fsys, path.Join("data", f.Path), offset)
			r := check(t, fsys)
			require.True(t, isDamage(r.Err()), "%s at %d: %v", f.Path, offset, r.Err())
			require.Contains(t, damagedPaths(r), f.Path, "at %d", offset)
			if f.Kind != KindStore && f.Kind != KindLog {
				require.Len(t, r.Damaged(), 1, "%s at %d: %v", f.Path, offset, r.Err())
			}
		}
	}
}

// A store whose keys never expire has no CLOCK. If CLOCK exists, it must be valid.
func TestClockIsChecked(t *testing.T) {
	fsys := newStore(t)
	d, err := descriptor.Read(fsys, "data")
	require.NoError(t, err)
	right := descriptor.Clock{StoreID: d.StoreID, Bound: 1000}
	foreign := descriptor.Clock{StoreID: d.StoreID + 1, Bound: 1000}
	require.NoError(t, vfs.WriteAtomic(fsys, "data/CLOCK", right.Encode()))
	r := check(t, fsys)
	require.NoError(t, r.Err())
	i := slices.IndexFunc(r.Files, func(f File) bool { return f.Kind == KindClock })
	require.GreaterOrEqual(t, i, 0)
	assert.EqualValues(t, len(right.Encode()), r.Files[i].Bytes)

	require.NoError(t, vfs.WriteAtomic(fsys, "data/CLOCK", foreign.Encode()))
	assert.Equal(t, []string{"CLOCK"}, damagedPaths(check(t, fsys)))
	require.NoError(t, vfs.WriteAtomic(fsys, "data/CLOCK", right.Encode()))
	for offset := range int64(len(right.Encode())) {
		damaged := fsys.KillImage()
		flipByte(t, damaged, "data/CLOCK", offset)
		assert.Equal(t, []string{"CLOCK"}, damagedPaths(check(t, damaged)), "at %d", offset)
	}
}

func TestTheDirectoryMayHaveAnyName(t *testing.T) {
	for _, dir := range []string{".", "/", "./data/", "/data", "a/../data/."} {
		fsys := vfs.NewMem()
		e, err := engine.Open(dir, engine.Options{FS: fsys, Partitions: 1})
		require.NoError(t, err)
		require.NoError(t, e.Close())
		r, err := Check(t.Context(), fsys, dir, nil, nil)
		require.NoError(t, err)
		require.NoError(t, r.Err(), dir)
		require.NoError(t, fsys.Remove(path.Join(dir, "p-0000/MANIFEST-000001")))
		flipByte(t, fsys, path.Join(dir, "wal/000001.wal"), 20)
		r, err = Check(t.Context(), fsys, dir, nil, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"p-0000/MANIFEST-000001", "wal/000001.wal"}, damagedPaths(r), dir)
	}
}

func TestATableFromElsewhereIsFound(t *testing.T) {
	fsys := newStore(t)
	var tables []File
	for _, f := range check(t, fsys).Files {
		if f.Kind == KindBase {
			tables = append(tables, f)
		}
	}
	require.GreaterOrEqual(t, len(tables), 2)
	b, err := readSmall(fsys, path.Join("data", tables[0].Path))
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, path.Join("data", tables[1].Path), b))
	r := check(t, fsys)
	assert.Equal(t, []string{tables[1].Path}, damagedPaths(r))
}

func TestATableMustHoldWhatTheManifestSays(t *testing.T) {
	fsys, _ := sampleFiles(t)
	c := &checker{ctx: t.Context(), fsys: fsys, dir: "data"}
	file := &File{Path: "p-0003/000013.sst"}
	holds := kv.TableMeta{
		Num: 13, Size: 392, Entries: 5, Deletes: 1, Smallest: []byte("a\x00"), Largest: []byte("ä\xff"), MinSeq: 2, MaxSeq: 9,
	}
	require.NoError(t, c.table(file, 3, &holds, nil))
	for name, change := range map[string]func(*kv.TableMeta){
		"size": func(m *kv.TableMeta) { m.Size++ }, "entries": func(m *kv.TableMeta) { m.Entries++ },
		"deletes": func(m *kv.TableMeta) { m.Deletes++ }, "first number": func(m *kv.TableMeta) { m.MinSeq-- },
		"last number": func(m *kv.TableMeta) { m.MaxSeq++ }, "first key": func(m *kv.TableMeta) { m.Smallest = []byte("a") },
		"last key": func(m *kv.TableMeta) { m.Largest = []byte("z") },
		"values":   func(m *kv.TableMeta) { m.Values = []kv.ValueRef{{File: 1, Values: 1, Bytes: 1}} },
	} {
		says := holds
		change(&says)
		err := c.table(file, 3, &says, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.ErrorContains(t, err, "the manifest says", name)
	}
}

func TestAnOlderLogIsFound(t *testing.T) {
	fsys := vfs.NewMem()
	e := openStore(t, fsys)
	_, err := e.Put(t.Context(), []byte("a"), []byte("1"), kv.WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	old := fsys.KillImage()

	e = openStore(t, fsys)
	for range 10 {
		_, err := e.Put(t.Context(), []byte("a"), []byte("2"), kv.WriteOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, e.Close())
	require.NoError(t, check(t, fsys).Err())

	// Restore an older copy of the log alone.
	names, err := fsys.List("data/wal")
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, fsys.Remove("data/wal/"+name))
	}
	names, err = old.List("data/wal")
	require.NoError(t, err)
	for _, name := range names {
		b, err := readSmall(old, "data/wal/"+name)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteAtomic(fsys, "data/wal/"+name, b))
	}
	r := check(t, fsys)
	require.ErrorIs(t, r.Err(), kv.ErrCorrupt)
	assert.ErrorContains(t, r.Err(), "newer segments are missing")
	_, err = engine.Open("data", engine.Options{FS: fsys})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	assert.ErrorContains(t, err, "its end is missing", "the store is not served without the writes that the log had")
}

func TestFilesThatNobodyNeedsAreNoted(t *testing.T) {
	fsys := newStore(t)
	for _, name := range []string{"p-0000/000999.sst", "p-0000/core", "p-0001/CURRENT.tmp", "notes.txt", "wal/README"} {
		require.NoError(t, vfs.WriteAtomic(fsys, "data/"+name, []byte("hello")))
	}
	r := check(t, fsys)
	require.NoError(t, r.Err())
	notes := map[string]string{}
	for _, f := range r.Files {
		if f.Kind == KindOther {
			notes[f.Path] = f.Note
		}
	}
	assert.Equal(t, map[string]string{
		"p-0000/000999.sst":  "not in use; the next open removes it or sets it aside",
		"p-0000/core":        "not ours; the next open moves it to lost+found",
		"p-0001/CURRENT.tmp": "not in use; the next open removes it or sets it aside",
		"notes.txt":          "", "wal/README": "",
	}, notes)
}

func TestAnOpenStoreIsNotChecked(t *testing.T) {
	fsys := vfs.NewMem()
	e := openStore(t, fsys)
	_, err := Check(t.Context(), fsys, "data", nil, nil)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, e.Close())
	require.NoError(t, check(t, fsys).Err())
}

func TestWhereThereIsNoStoreThereIsNoReport(t *testing.T) {
	fsys := vfs.NewMem()
	_, err := Check(t.Context(), fsys, "data", nil, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, fsys.MkdirAll("data"))
	_, err = Check(t.Context(), fsys, "data", nil, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	names, err := fsys.List("data")
	require.NoError(t, err)
	assert.Empty(t, names, "no lock file was made")
}

func TestCheckEndsWithItsContext(t *testing.T) {
	fsys := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Check(ctx, fsys, "data", nil, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// The log of a node may be damaged in several places, each of which is told of its segment.
func TestEveryDamagedSegmentOfANodeIsTold(t *testing.T) {
	fsys := newStore(t)
	d, err := descriptor.Read(fsys, "data")
	require.NoError(t, err)
	require.NoError(t, descriptor.WriteNode(fsys, "data", &descriptor.Node{StoreID: d.StoreID, Cluster: 1, Node: 2, Members: map[uint64]string{2: "127.0.0.1:1"}}))
	for _, name := range []string{"000001.raft", "000002.raft", "000003.raft"} {
		require.NoError(t, vfs.WriteAtomic(fsys, "data/wal/"+name, []byte("frames")))
	}
	r, err := Check(t.Context(), fsys, "data", func(vfs.FS, string, *descriptor.Node) (string, error) {
		return "", errors.Join(kv.Corruptf("data/wal/000001.raft", 7, "flipped"), kv.Corruptf("data/wal/000002.raft", 9, "cut"), errors.New("the disk failed"))
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"wal/000001.raft", "wal/000002.raft", "wal/000003.raft"}, damagedPaths(r))
	assert.ErrorContains(t, r.Err(), "at offset 7: flipped")
	assert.ErrorContains(t, r.Err(), "at offset 9: cut")
	assert.ErrorContains(t, r.Err(), "wal/000003.raft: the disk failed")
}

// A record whose frame verifies may be none of this store. The check names its segment and
// its place, and goes on.
func TestRecordsOfNoStoreAreTold(t *testing.T) {
	fsys := newStore(t)
	d, err := descriptor.Read(fsys, "data")
	require.NoError(t, err)
	var records []wal.Record
	report, err := wal.Verify(fsys, "data/wal", d.StoreID, func(r wal.Record) error {
		r.Payload = bytes.Clone(r.Payload)
		records = append(records, r)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, report.Problem)
	require.Greater(t, len(records), 3)
	for _, f := range report.Files {
		require.NoError(t, fsys.Remove(f.Name))
	}
	records[1].Payload = []byte("nonsense")
	records[3].Payload = []byte("nonsense")
	log := wal.NewRebuild(fsys, "data/wal", d.StoreID)
	for _, r := range records {
		require.NoError(t, log.Add(r))
	}
	require.NoError(t, log.Finish(report.NextSeq))
	r := check(t, fsys)
	require.ErrorIs(t, r.Err(), kv.ErrCorrupt)
	assert.Equal(t, []string{"wal/000001.wal"}, damagedPaths(r))
	for _, i := range []int{1, 3} {
		assert.ErrorContains(t, r.Err(), fmt.Sprintf("record %d: ", records[i].Base))
	}
	assert.EqualValues(t, len(records), r.Records)
}

// A log may be damaged in more places than a report can list.
func TestTheReportOfALogIsBounded(t *testing.T) {
	found := foundPlaces{}
	for i := range int64(10 * maxLogErrors) {
		found.add("wal/000001.wal", kv.Corruptf("data/wal/000001.wal", 8*i, "flipped"))
	}
	c := &checker{ctx: t.Context(), dir: "data", files: map[string]*File{}}
	require.NoError(t, found.tell(c))
	err := c.files["wal/000001.wal"].Err
	assert.Len(t, kv.Corruptions(err), maxLogErrors)
	assert.ErrorContains(t, err, fmt.Sprintf("and %d more damaged places", 9*maxLogErrors))
}
