package replicated

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// testdata/stores/v1 is the store of the only node of a cluster after a kill, as the first version
// with clusters wrote it: tables, entries of all kinds that are in the log alone, and NODE. It is only read
// from then on. A version with a new format adds a store, and keeps this one.
var updateStore = flag.Bool("update", false, "write the golden store of the present formats again")

const goldenStore = "testdata/stores/v1"

// goldenOptions are what the store was written with. Its log has several segments.
func goldenOptions(o *engine.Options) {
	o.Partitions, o.SegmentBytes, o.CompareInterval = 2, 4<<10, 2*time.Second
}

func writeGoldenStore(t *testing.T) {
	c := startCluster(t, 1, goldenOptions)
	defer c.stop()
	n := c.leader()
	for i := range 40 {
		n.put(fmt.Sprintf("key %02d", i), fmt.Sprintf("in a table %d", i))
	}
	_, err := n.store.Apply(t.Context(), expiring("expires", 4_102_444_800_000), kv.WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, n.store.Flush(t.Context()))
	time.Sleep(3 * time.Second) // it compares, and positions are saved
	for i := range 10 {
		n.put(fmt.Sprintf("key %02d", i), "in the log")
	}
	_, err = n.store.Delete(t.Context(), []byte("key 39"), kv.WriteOptions{})
	require.NoError(t, err)
	image := n.fs.KillImage()
	writeNode(t, &node{id: 1, fs: image})
	require.NoError(t, os.RemoveAll(goldenStore))
	save(t, image, "data", goldenStore)
}

// save writes the files of a store, but LOCK and BALLAST, below a directory.
func save(t *testing.T, fsys vfs.FS, from, to string) {
	require.NoError(t, os.MkdirAll(to, 0o750))
	names, err := fsys.List(from)
	require.NoError(t, err)
	for _, name := range names {
		info, err := fsys.Stat(path.Join(from, name))
		require.NoError(t, err)
		switch {
		case info.IsDir():
			save(t, fsys, path.Join(from, name), filepath.Join(to, name))
		case name != "LOCK" && name != "BALLAST":
			f, err := fsys.Open(path.Join(from, name))
			require.NoError(t, err)
			data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
			require.NoError(t, errors.Join(err, f.Close()))
			require.NoError(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
		}
	}
}

// load returns a file system with the store in the directory data.
func load(t *testing.T) *vfs.Mem {
	fsys := vfs.NewMem()
	require.NoError(t, filepath.WalkDir(goldenStore, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := path.Join("data", filepath.ToSlash(strings.TrimPrefix(file, goldenStore)))
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

func TestTheGoldenStoreOfAMember(t *testing.T) {
	if *updateStore {
		synctest.Test(t, writeGoldenStore)
	}
	disk := load(t)
	files, err := formats.Survey(disk, "data")
	require.NoError(t, err)
	kinds := map[*formats.Kind]uint32{}
	for _, f := range files {
		require.NoError(t, f.Err)
		kinds[f.Kind] = f.Version
	}
	require.EqualValues(t, 1, kinds[formats.Node])
	require.EqualValues(t, 1, kinds[formats.Replicated])
	report, err := inspect.Check(t.Context(), disk, "data", CheckLog, nil)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, tune: goldenOptions}
		n := &node{c: c, id: 1, fs: disk}
		c.nodes = []*node{n}
		for range 2 { // as it is, and after it was opened and written to
			n.start()
			c.leader()
			for i := range 39 {
				want := "in the log"
				if i >= 10 {
					want = fmt.Sprintf("in a table %d", i)
				}
				require.Equal(t, want, n.get(fmt.Sprintf("key %02d", i)))
			}
			require.Empty(t, n.get("key 39"))
			require.Equal(t, "value", n.get("expires"))
			n.put("new", "x")
			require.NoError(t, n.store.CompactAll(t.Context()))
			n.stop()
		}
	})
}
