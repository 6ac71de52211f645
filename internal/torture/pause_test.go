package torture

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// TestAPausedServerGoesOn: a process that was stopped for longer than --max-sync-time, with
// syncs under way, has not waited for the disk.
func TestAPausedServerGoesOn(t *testing.T) {
	s := serve(t, t.TempDir(), "--max-sync-time", "1s")
	c := startCounters(t, s.addr, 16, kvd.Sync)
	for range 3 {
		c.grow(100)
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(2500 * time.Millisecond) // of the process, not of the test: it is what is tested
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	}
	c.grow(100)
	c.end()
	c.check(t, s.addr)
	s.stop(t)
	assert.NotContains(t, s.log.String(), "does not answer")
}
