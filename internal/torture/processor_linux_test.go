package torture

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onOneProcessor has the processes that start starts run on one processor, the same one at each call. The
// test runs on all of them.
func onOneProcessor(t *testing.T, start func()) {
	t.Helper()
	runtime.LockOSThread() // a process gets the processors of the thread that starts it
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	first := 0
	for !all.IsSet(first) {
		first++
	}
	one.Set(first)
	require.NoError(t, unix.SchedSetaffinity(0, &one))
	defer func() { assert.NoError(t, unix.SchedSetaffinity(0, &all)) }()
	start()
}
