package torture

import (
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// saidSlow is what a server logs of a disk operation that has taken for a second: how long it has.
var saidSlow = regexp.MustCompile(`the disk does not answer\s.*"for": "([^"]+)"`)

// TestAPausedServerGoesOn: a process that was stopped for longer than --max-sync-time, with
// syncs under way, has not waited for the disk. That may be slow by itself beside other tests: what
// the server then says is how long it waited while it ran, and never a pause.
func TestAPausedServerGoesOn(t *testing.T) {
	const limit, pause = 8 * time.Second, 9 * time.Second
	s := serve(t, t.TempDir(), "--max-sync-time", limit.String())
	c := startCounters(t, s.addr, 16, kvd.Sync)
	for range 2 {
		c.grow(100)
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(pause) // of the process, not of the test: it is what is tested
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	}
	c.grow(100)
	c.end()
	c.check(t, s.addr)
	s.stop(t)
	for _, said := range saidSlow.FindAllStringSubmatch(s.log.String(), -1) {
		took, err := time.ParseDuration(said[1])
		require.NoError(t, err)
		assert.Less(t, took, pause, "%s", said[0])
	}
}
