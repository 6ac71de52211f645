package inspect

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// heapFS notes how large the heap becomes while values are read.
type heapFS struct {
	vfs.FS
	mu    sync.Mutex
	reads int
	most  uint64
}

func (s *heapFS) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".val") {
		return f, err
	}
	return &heapFile{f, s}, nil
}

type heapFile struct {
	vfs.File
	of *heapFS
}

func (f *heapFile) ReadAt(p []byte, off int64) (int, error) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.reads++; f.of.reads%16 == 0 {
		f.of.most = max(f.of.most, heap())
	}
	return f.File.ReadAt(p, off)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A check needs memory for the filter and index of one table, and not for hundreds of values.
func TestACheckDoesNotKeepValues(t *testing.T) {
	testsize.OneGoroutine(t) // a check has one, and what it checks is large
	const count, size = 128, 512 << 10
	fsys := vfs.NewMem()
	e, err := engine.Open("data", engine.Options{FS: fsys, Partitions: 1, ValueThreshold: 1 << 10, LowDiskBytes: 1})
	require.NoError(t, err)
	for i := range count {
		_, err := e.Put(t.Context(), fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{byte(i)}, size), kv.WriteOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	require.NoError(t, e.Close())
	before := heap()
	s := &heapFS{FS: fsys}
	require.NoError(t, check(t, s).Err())
	require.Less(t, s.most, before+16<<20, "%d values of %d bytes are in memory", count, size)
}
