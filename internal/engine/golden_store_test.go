package engine

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// The stores in testdata/stores were written by kvd and are only read from then on. Each is
// the directory after a kill, so it has files of every kind, and writes that are in the log
// alone:
//
//	log-1    by the last version whose log had format 1, with goldenLife
//	log-2    by the first version that had kvd upgrade
//	table-5  by the first version that padded the blocks of tables; -update writes it again
//
// A version with a new format adds a store here, and keeps the others.
var updateStore = flag.Bool("update", false, "write the golden store of the present formats again")

const (
	goldenStores  = "testdata/stores"
	presentStore  = "table-5"
	goldenFill    = 120               // entries that fill more than a page of each table
	goldenExpires = 4_102_444_800_000 // the year 2100
)

func goldenOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, MemtableBytes: 128 << 10, CacheBytes: 64 << 10, SegmentBytes: 64 << 10, LowDiskBytes: 1}
}

// goldenRequest is the id of the last write.
var goldenRequest = kv.RequestID{ClientID: 7, Sequence: 1}

// goldenLife writes what goldenStoreContents says, and leaves the end in the log.
func goldenLife(t *testing.T, e *Engine) {
	t.Helper()
	ctx := t.Context()
	for i := range 20 {
		put(t, e, key(i), fmt.Sprintf("in the base %d", i), synced)
	}
	for i := range goldenFill {
		put(t, e, fillKey(i), fillValue, buffered)
	}
	put(t, e, "large", strings.Repeat("in a value file ", 32), synced)
	require.NoError(t, e.Write(ctx, []*kv.Write{{
		Op: kv.Op{Kind: kv.KindPut, Key: []byte("expires"), Value: []byte("in 2100"), Expiry: goldenExpires}, Durability: kv.DurabilitySync,
	}}))
	require.NoError(t, e.CompactAll(ctx))
	put(t, e, key(3), "in a delta", synced)
	_, err := e.Delete(ctx, []byte(key(4)), synced)
	require.NoError(t, err)
	_, err = e.DeleteRange(ctx, kv.Range{Start: []byte(key(10)), End: []byte(key(15))}, synced)
	require.NoError(t, err)
	require.NoError(t, e.Flush(ctx))
	var b kv.WriteBatch
	for i := 5; i < 9; i++ {
		b.Put([]byte(key(i)), []byte("in the log"))
	}
	b.Delete([]byte(key(9)))
	_, err = e.Apply(ctx, &b, synced)
	require.NoError(t, err)
	o := synced
	o.RequestID = goldenRequest
	put(t, e, "late", "in the log too", o)
}

const fillValue = "of about a hundred bytes, as most entries of this store are: with its key it is a 36th of a page."

func fillKey(i int) string { return fmt.Sprintf("fill%04d", i) }

// goldenStoreContents returns what a golden store holds.
func goldenStoreContents(name string) map[string]string {
	all := map[string]string{"expires": "in 2100", "large": strings.Repeat("in a value file ", 32), "late": "in the log too"}
	for i := range 20 {
		all[key(i)] = fmt.Sprintf("in the base %d", i)
	}
	if name == presentStore {
		for i := range goldenFill {
			all[fillKey(i)] = fillValue
		}
	}
	all[key(3)] = "in a delta"
	for i := 5; i < 9; i++ {
		all[key(i)] = "in the log"
	}
	for _, gone := range []int{4, 9, 10, 11, 12, 13, 14} {
		delete(all, key(gone))
	}
	return all
}

// goldenStore returns a file system with a golden store in the directory data.
func goldenStore(t *testing.T, name string) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	from := filepath.Join(goldenStores, name)
	require.NoError(t, filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := path.Join("data", filepath.ToSlash(strings.TrimPrefix(file, from)))
		if entry.IsDir() {
			return errors.Join(fsys.MkdirAll(to), fsys.SyncDir(path.Dir(to)))
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return vfs.WriteAtomic(fsys, to, data)
	}))
	return fsys
}

// saveStore writes the files of a store, but LOCK and BALLAST, below a directory.
func saveStore(t *testing.T, fsys vfs.FS, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o750))
	names, err := fsys.List(from)
	require.NoError(t, err)
	for _, name := range names {
		info, err := fsys.Stat(path.Join(from, name))
		require.NoError(t, err)
		switch {
		case info.IsDir():
			saveStore(t, fsys, path.Join(from, name), filepath.Join(to, name))
		case name != "LOCK" && name != "BALLAST":
			f, err := fsys.Open(path.Join(from, name))
			require.NoError(t, err)
			data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
			require.NoError(t, errors.Join(err, f.Close()))
			require.NoError(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
		}
	}
}

func TestGoldenStoresAreReadWrittenAndReadAgain(t *testing.T) {
	if *updateStore {
		disk := vfs.NewMem()
		o := goldenOptions(disk)
		o.Partitions = 2
		e := open(t, o)
		goldenLife(t, e)
		dir := filepath.Join(goldenStores, presentStore)
		require.NoError(t, os.RemoveAll(dir))
		saveStore(t, disk.KillImage(), "data", dir)
	}
	for name, written := range map[string]struct{ log, table uint32 }{"log-1": {1, 4}, "log-2": {2, 4}, presentStore: {2, 5}} {
		t.Run(name, func(t *testing.T) {
			disk := goldenStore(t, name)
			assert.Equal(t, written.log, oldestLog(t, disk))
			assert.Equal(t, written.table, newestTable(t, disk))
			want := goldenStoreContents(name)
			life := func(change func(e *Engine)) {
				e, err := Open("data", goldenOptions(disk))
				require.NoError(t, err)
				require.Equal(t, want, contents(t, e))
				change(e)
				require.NoError(t, e.Close())
			}
			life(func(e *Engine) {
				o := synced
				o.RequestID = goldenRequest
				o.RequestID.Retried = true
				assert.Equal(t, e.Recovery().LastSeq, put(t, e, "late", "in the log too", o), "the log has the request id")
				put(t, e, key(3), "new", synced)
				want[key(3)] = "new"
			})
			life(func(e *Engine) { require.NoError(t, e.CompactAll(t.Context())) })
			life(func(*Engine) {})
		})
	}
}

// versionsOf returns the format versions of the files of a kind.
func versionsOf(t *testing.T, fsys vfs.FS, kind *formats.Kind) (versions []uint32) {
	t.Helper()
	files, err := formats.Survey(fsys, "data")
	require.NoError(t, err)
	for i := range files {
		f := &files[i]
		require.NoError(t, f.Err)
		require.False(t, f.Unknown(), f.Path)
		if f.Kind == kind {
			versions = append(versions, f.Version)
		}
	}
	return versions
}

// oldestLog returns the oldest format version of the segments of a log.
func oldestLog(t *testing.T, fsys vfs.FS) uint32 {
	t.Helper()
	return slices.Min(versionsOf(t, fsys, formats.Log))
}

// newestTable returns the newest format version of the tables.
func newestTable(t *testing.T, fsys vfs.FS) uint32 {
	t.Helper()
	return slices.Max(versionsOf(t, fsys, formats.Table))
}

func rewriteLog(t *testing.T, fsys vfs.FS) error {
	t.Helper()
	e, err := Open("data", goldenOptions(fsys))
	if err != nil {
		return err
	}
	return errors.Join(e.RewriteLog(t.Context()), e.Close())
}

func TestRewritingTheLogLeavesNoOldFormat(t *testing.T) {
	disk := goldenStore(t, "log-1")
	require.NoError(t, rewriteLog(t, disk))
	assert.Equal(t, formats.Log.Writes, oldestLog(t, disk))
	requireGolden(t, disk)
}

// requireGolden opens the store, which must hold what it was written with.
func requireGolden(t *testing.T, disk vfs.FS) {
	t.Helper()
	e, err := Open("data", goldenOptions(disk))
	require.NoError(t, err)
	require.Equal(t, goldenStoreContents("log-1"), contents(t, e))
	require.NoError(t, e.Close())
}

// A power cut at any moment of an upgrade leaves a store that is whole, and the repeated
// upgrade completes it.
func TestAnUpgradeAtEveryCrash(t *testing.T) {
	disk := goldenStore(t, "log-1")
	var mu sync.Mutex
	images := map[string]*vfs.Mem{}
	disk.SetHook(func(step vfs.Step) {
		policy := vfs.CrashPolicies[step.N%len(vfs.CrashPolicies)]
		image := disk.CrashImage(policy, rand.New(rand.NewPCG(1, uint64(step.N))))
		mu.Lock()
		defer mu.Unlock()
		images[fmt.Sprintf("step %d, %s of %s, %v", step.N, step.Kind, step.Name, policy)] = image
	})
	require.NoError(t, rewriteLog(t, disk))
	disk.SetHook(nil)
	requireGolden(t, disk)
	assert.Greater(t, len(images), 20)
	for i, at := range slices.Sorted(maps.Keys(images)) {
		if testsize.Reduced() && i%3 > 0 {
			continue
		}
		image := images[at]
		t.Run(at, func(t *testing.T) {
			requireGolden(t, image.CrashImage(vfs.KeepAll, nil))
			require.NoError(t, rewriteLog(t, image))
			require.Equal(t, formats.Log.Writes, oldestLog(t, image))
			requireGolden(t, image)
		})
	}
}
