package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a Source with files in memory.
type store struct {
	names    []string
	contents map[string]string
	version  kv.SeqNum
	sent     int64           // bytes of content
	fail     map[string]bool // Fetch of these fails
	corrupt  map[string]bool // the content of these changes on the way
}

var errFetch = errors.New("the server is gone")

func newStore(contents ...string) *store {
	s := &store{contents: map[string]string{}, version: 7}
	for i := 0; i < len(contents); i += 2 {
		s.set(contents[i], contents[i+1])
	}
	return s
}

func (s *store) set(name, content string) {
	if _, ok := s.contents[name]; !ok {
		s.names = append(s.names, name)
	}
	s.contents[name] = content
}

func (s *store) Info() Info {
	info := Info{StoreID: 0x0123456789abcdef, Version: s.version}
	for _, name := range s.names {
		info.Files = append(info.Files, File{name, int64(len(s.contents[name]))})
	}
	return info
}

func (s *store) Fetch(_ context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	if s.fail[name] {
		return 0, nil, errFetch
	}
	content := s.contents[name]
	sum := sumOf([]byte(content))
	if slices.Contains(known, sum) {
		return sum, nil, nil
	}
	s.sent += int64(len(content))
	if s.corrupt[name] {
		content = "X" + content[1:]
	}
	return sum, strings.NewReader(content), nil
}

// small returns a store with a file of each kind.
func small() *store {
	return newStore(
		"STORE", "the store", "CLOCK", "the clock",
		"p-0000/MANIFEST-000001", "m0", "p-0000/CURRENT", "c0", "p-0000/000002.sst", strings.Repeat("table", 300), "p-0000/000003.val", "values",
		"p-0001/MANIFEST-000001", "m1", "p-0001/CURRENT", "c1", "p-0001/000002.sst", "another table",
		"wal/000001.wal", "first segment", "wal/000002.wal", "",
	)
}

var noon = time.Date(2026, 11, 23, 12, 0, 0, 5e6, time.UTC)

func lock(t testing.TB, fsys vfs.FS) *Directory {
	t.Helper()
	d, err := LockDirectory(fsys, "backups", true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// create makes a backup, with the directory locked meanwhile.
func create(ctx context.Context, fsys vfs.FS, s Source) (r *Result, err error) {
	d, err := LockDirectory(fsys, "backups", true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Create(ctx, s, noon, Options{})
}

// requireStore fails unless a directory holds the files of the store, and nothing else.
func requireStore(t testing.TB, fsys vfs.FS, dir string, s *store, what string) {
	t.Helper()
	got := tree(t, fsys, dir)
	require.Len(t, got, len(s.contents), what)
	for name, content := range s.contents {
		require.Equal(t, content, got[name], "%s: %s", what, name)
	}
}

// tree returns the files below a directory.
func tree(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	require.NoError(t, err)
	for _, name := range names {
		info, err := fsys.Stat(path.Join(dir, name))
		require.NoError(t, err)
		if info.IsDir() {
			for below, content := range tree(t, fsys, path.Join(dir, name)) {
				all[path.Join(name, below)] = content
			}
			continue
		}
		b, err := readFile(fsys, path.Join(dir, name), 1<<20)
		require.NoError(t, err)
		all[name] = string(b)
	}
	return all
}

// newDisk returns a disk with an empty directory.
func newDisk(t testing.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("elsewhere"))
	require.NoError(t, m.SyncDir("/"))
	return m
}

func write(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	require.NoError(t, vfs.WriteAtomic(fsys, name, []byte(content)))
}

func stream(t testing.TB, s Source) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := WriteStream(t.Context(), &b, s, noon, Options{})
	require.NoError(t, err)
	return b.Bytes()
}

func at(i int) string { return fmt.Sprintf("at %d", i) }
