package engine

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Readers that find everything in memory yield long before the runtime preempts them.
func TestReadersLetOthersRun(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "key", "value", memory)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ran atomic.Bool
	go ran.Store(true)
	reads := 0
	for ; !ran.Load(); reads++ {
		_, err := e.Get(t.Context(), []byte("key"))
		require.NoError(t, err)
	}
	// At one yield in 16 the odds of 400 reads without any are below 1 in 10^11.
	require.Less(t, reads, 400)
}
