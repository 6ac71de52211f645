package formats_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// storeWithEveryKind returns the files of a stopped store that has every kind of file.
func storeWithEveryKind(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	e, err := engine.Open("data", engine.Options{FS: fsys, Partitions: 2, SegmentBytes: 64 << 10, LowDiskBytes: 1})
	require.NoError(t, err)
	o := kv.WriteOptions{Durability: kv.DurabilitySync}
	_, err = e.Put(t.Context(), []byte("a"), bytes.Repeat([]byte("v"), 1000), o)
	require.NoError(t, err)
	require.NoError(t, e.Write(t.Context(), []*kv.Write{{
		Op: kv.Op{Kind: kv.KindPut, Key: []byte("b"), Value: []byte("expires"), Expiry: e.Now() + 1<<40}, Durability: kv.DurabilitySync,
	}}))
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, e.Close())
	// No store has both kinds of log.
	d, err := descriptor.Read(fsys, "data")
	require.NoError(t, err)
	node := descriptor.Node{StoreID: d.StoreID, Cluster: 1, Node: 2, Members: map[uint64]string{2: "127.0.0.1:1"}}
	require.NoError(t, descriptor.WriteNode(fsys, "data", &node))
	log, _, err := raftlog.Open(raftlog.Options{FS: fsys, Dir: "data/wal", StoreID: node.LogID(), Fresh: true})
	require.NoError(t, err)
	require.NoError(t, log.Close())
	return fsys
}

func survey(t *testing.T, fsys vfs.FS) map[*formats.Kind][]formats.File {
	t.Helper()
	all, err := formats.Survey(fsys, "data")
	require.NoError(t, err)
	byKind := map[*formats.Kind][]formats.File{}
	for _, f := range all {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	return byKind
}

func TestTheFilesOfAStoreHaveTheFormatsThatThisKvdWrites(t *testing.T) {
	byKind := survey(t, storeWithEveryKind(t))
	for _, kind := range formats.Kinds {
		assert.NotEmpty(t, byKind[kind], kind.Name)
		for _, f := range byKind[kind] {
			assert.NoError(t, f.Err)
			assert.False(t, f.Outdated(), f.Path)
			assert.False(t, f.Unknown(), f.Path)
			assert.Positive(t, f.Bytes, f.Path)
		}
	}
	require.NoError(t, formats.Check(vfs.NewMem(), "data"), "no store")
	_, err := formats.Survey(vfs.NewMem(), "data")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A store with a file of a newer format is refused, and no byte of it changes.
func TestANewerFormatOfAnyFileIsRefusedAndNothingChanges(t *testing.T) {
	for _, kind := range formats.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			fsys := storeWithEveryKind(t)
			f := survey(t, fsys)[kind][0]
			name := path.Join("data", f.Path)
			require.NoError(t, vfs.WriteAtomic(fsys, name, newer(t, kind, read(t, fsys, name))))
			changed := survey(t, fsys)[kind]
			require.True(t, changed[0].Unknown(), "%v", changed)
			require.NoError(t, vfs.WriteAtomic(fsys, "data/p-0001/000001.sst.tmp", []byte("what opening the store would remove")))
			before := contents(t, fsys, "data")
			for _, o := range []engine.Options{{FS: fsys}, {FS: fsys, ReadOnly: true}, {FS: fsys, Partitions: 2, LowDiskBytes: 1 << 20}} {
				_, err := engine.Open("data", o)
				require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
				require.ErrorContains(t, err, f.Path)
				require.ErrorContains(t, err, kind.Name)
			}
			assert.Equal(t, before, contents(t, fsys, "data"))
		})
	}
}

// newer returns a file of the format version after the newest.
func newer(t *testing.T, kind *formats.Kind, data []byte) []byte {
	t.Helper()
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	le := binary.LittleEndian
	n, version := len(data), kind.Newest+1
	switch kind {
	case formats.Store, formats.Clock, formats.Node:
		le.PutUint32(data[8:], version) // an older kvd looks at nothing behind it
	case formats.Log, formats.Replicated:
		le.PutUint32(data[8:], version)
		le.PutUint32(data[12:], crc32.Update(crc32.Checksum(data[:12], castagnoli), castagnoli, data[16:64]))
	case formats.Manifest:
		le.PutUint32(data[8:], version)
		le.PutUint32(data[12:], crc32.Checksum(data[:12], castagnoli))
	case formats.Current:
		line := strings.Replace(string(data[:n-9]), " 1 ", " 2 ", 1)
		data = fmt.Appendf(nil, "%s%08x\n", line, crc32.Checksum([]byte(line), castagnoli))
	default:
		length := int(le.Uint32(data[n-20:]))
		le.PutUint32(data[n-16:], version)
		le.PutUint32(data[n-12:], crc32.Checksum(data[n-length:n-12], castagnoli))
	}
	return data
}

func read(t *testing.T, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.Open(name)
	require.NoError(t, err)
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	require.NoError(t, errors.Join(err, f.Close()))
	return data
}

// contents returns every file below a directory.
func contents(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fsys.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := fsys.Stat(name)
		require.NoError(t, err)
		if info.IsDir() {
			all[name] = "directory"
			maps.Copy(all, contents(t, fsys, name))
			continue
		}
		all[name] = string(read(t, fsys, name))
	}
	return all
}

// Damage is not taken for a newer format, and opening the store reports it.
func TestDamageIsNoFormat(t *testing.T) {
	for _, kind := range formats.Kinds {
		fsys := storeWithEveryKind(t)
		f := survey(t, fsys)[kind][0]
		name := path.Join("data", f.Path)
		for what, data := range map[string][]byte{"empty": nil, "zeros": make([]byte, f.Bytes), "cut": read(t, fsys, name)[:9]} {
			require.NoError(t, vfs.WriteAtomic(fsys, name, data))
			found := survey(t, fsys)[kind]
			require.ErrorIs(t, found[0].Err, kv.ErrCorrupt, "%s %s", kind.Name, what)
			require.NoError(t, formats.Check(fsys, "data"), "%s %s", kind.Name, what)
		}
		require.NoError(t, fsys.Remove(name))
		all, err := formats.Survey(fsys, "data")
		switch kind {
		case formats.Store:
			require.ErrorIs(t, err, fs.ErrNotExist)
		case formats.Clock, formats.Node, formats.Log, formats.Replicated:
			require.NoError(t, err)
		default:
			require.NoError(t, err)
			missing := false
			for _, f := range all {
				missing = missing || f.Err != nil
			}
			assert.True(t, missing, kind.Name)
		}
	}
}

// An error of the disk is no answer about formats.
func TestAFailedReadIsReported(t *testing.T) {
	fsys := storeWithEveryKind(t)
	for i := 0; ; i++ {
		faulty := faultfs.Wrap(fsys, faultfs.FailAt(i, syscall.EIO, false))
		err := formats.Check(faulty, "data")
		if !faulty.Fired() {
			require.NoError(t, err)
			assert.Greater(t, i, 20, "operations")
			return
		}
		require.ErrorIs(t, err, syscall.EIO, "operation %d", i)
	}
}
