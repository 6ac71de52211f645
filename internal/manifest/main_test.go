package manifest

import (
	"bytes"
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "data/p-0003"

// table returns the description of a table with the keys smallest and largest
// and entries of the sequence numbers first to last.
func table(num kv.FileNum, smallest, largest string, first, last kv.SeqNum) kv.TableMeta {
	return kv.TableMeta{
		Num: num, Size: 100 + uint64(num), Entries: 10, Deletes: 1,
		Smallest: []byte(smallest), Largest: []byte(largest), MinSeq: first, MaxSeq: last,
	}
}

// nums returns the numbers of the tables of a run.
func nums(r Run) []kv.FileNum {
	var all []kv.FileNum
	for i := range r {
		all = append(all, r[i].Num)
	}
	return all
}

// contents describes what a Version holds, without the numbers that differ between
// manifests.
func contents(v *Version) string {
	w := *v
	w.Num, w.NextFile = 0, 0
	return w.String()
}

// home is a partition's directory with the Set that a test works on.
type home struct {
	*Set
	fs     vfs.FS
	handed []kv.FileNum // the numbers that NewFileNum returned
}

func newMem(t testing.TB) *vfs.Mem {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll(path.Dir(testDir)))
	require.NoError(t, fsys.SyncDir("."))
	return fsys
}

// openHome creates the partition if necessary and opens it.
func openHome(fsys vfs.FS) (*home, error) {
	h := &home{fs: fsys}
	if err := Create(fsys, testDir, 3); err != nil {
		return nil, err
	}
	var err error
	h.Set, err = Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: h.remove})
	return h, err
}

func (h *home) remove(kind FileKind, num kv.FileNum) {
	name := TableName(num)
	if kind == FileValues {
		name = ValuesName(num)
	}
	// If a fault keeps the file, the next Open removes it.
	_ = h.fs.Remove(path.Join(testDir, name))
}

// write makes a table as a flush or a compaction does: it syncs the file, but not its
// name.
func (h *home) write(smallest, largest string, first, last kv.SeqNum) (kv.TableMeta, error) {
	num, err := h.NewFileNum()
	if err != nil {
		return kv.TableMeta{}, err
	}
	h.handed = append(h.handed, num)
	t := table(num, smallest, largest, first, last)
	f, err := h.fs.Create(path.Join(testDir, TableName(num)))
	if err != nil {
		return t, err
	}
	if _, err = f.WriteAt(tableBytes(&t), 0); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return t, err
}

// tableBytes is the content of a table's file made by write.
func tableBytes(t *kv.TableMeta) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%06d ", t.Num), int(t.Size))[:t.Size]
}

// flush installs a delta of one table.
func (h *home) flush(smallest, largest string, first, last kv.SeqNum) error {
	t, err := h.write(smallest, largest, first, last)
	if err != nil {
		return err
	}
	return h.Install(Edit{Kind: Flush, Added: Run{t}, FlushedSeq: last})
}

// requireTables fails unless each table of v exists, byte for byte.
func requireTables(t testing.TB, fsys vfs.FS, v *Version) {
	t.Helper()
	for meta := range v.Tables() {
		data, err := readFile(fsys, path.Join(testDir, TableName(meta.Num)), 1<<20)
		require.NoError(t, err)
		require.Equal(t, string(tableBytes(meta)), string(data))
	}
}
