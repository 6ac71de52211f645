package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Flushed values are released: neither memtables nor buffers of records keep them.
func TestFlushedValuesLeaveMemory(t *testing.T) {
	testsize.OneGoroutine(t)
	const size, values = 5 << 19, 16 // larger than the buffers that the log keeps for later records
	o := small(vfs.OS)
	o.Partitions, o.MemtableBytes = 16, 256<<20
	e, err := Open(filepath.Join(t.TempDir(), "data"), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	inUse := func() int64 {
		for range 3 { // twice for the pools
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	for i := range values {
		put(t, e, fmt.Sprint(i), strings.Repeat("v", size), memory)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	assert.Less(t, inUse()-before, int64(2*size), "of %d bytes", values*size)
}
