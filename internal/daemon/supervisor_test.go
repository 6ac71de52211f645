package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestASupervisorIsToldEachPhaseOnce(t *testing.T) {
	n := notices{watched: true}
	const grace = 10 * time.Second
	for i, step := range []struct {
		phase  phase
		status string
		alive  bool
		want   string
	}{
		{starting, "opening", true, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=opening\nWATCHDOG=1"},
		{starting, "opening", true, "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1"},
		{serving, "serving", true, "READY=1\nSTATUS=serving\nWATCHDOG=1"},
		{serving, "serving", true, "WATCHDOG=1"},
		{serving, "not ready: writes:\nfull", true, "STATUS=not ready: writes: full\nWATCHDOG=1"},
		{serving, "not ready: store: failed", false, "STATUS=not ready: store: failed"},
		{serving, "not ready: store: failed", false, ""},
		{stopping, "stopping", true, "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\nSTATUS=stopping\nWATCHDOG=1"},
		{stopping, "stopping", true, "WATCHDOG=1"},
	} {
		assert.Equal(t, step.want, n.next(step.phase, step.status, step.alive, grace), "step %d", i)
	}
	unwatched := notices{phase: serving, status: "serving"}
	assert.Empty(t, unwatched.next(serving, "serving", true, grace))
}

// A supervisor that reads nothing does not keep the service from serving and stopping.
func TestASupervisorThatDoesNotReadHoldsNothingUp(t *testing.T) {
	c := testConfig(zap.NewNop(), vfs.NewMem())
	held := make(chan struct{})
	c.Supervisor = Supervisor{Send: func(string) error { <-held; return nil }, Watchdog: time.Second}
	r := start(t, c)
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), nil))
	require.NoError(t, r.end())
	close(held)
}

// Why the store takes no writes is in the status.
func TestTheStatusTellsWhyTheServiceIsNotReady(t *testing.T) {
	disk := vfs.NewMem()
	disk.SetCapacity(1 << 30)
	c := testConfig(zap.NewNop(), disk)
	c.LowDisk = 1 << 31
	told := make(chan string)
	ended := make(chan struct{})
	c.Supervisor = Supervisor{Watchdog: 2 * time.Millisecond, Send: func(state string) error {
		select {
		case told <- state:
		case <-ended:
		}
		return nil
	}}
	r := start(t, c)
	for state := ""; !strings.Contains(state, "STATUS=not ready: writes: "); {
		state = <-told
	}
	close(ended)
	require.NoError(t, r.end())
}

func TestTheWatchdogTimeIsThatOfThisProcess(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		micros, pid string
		want        time.Duration
	}{{"", "", 0}, {"20000", "", 20 * time.Millisecond}, {"20000", self, 20 * time.Millisecond}, {"20000", self + "0", 0}, {"", self, 0}} {
		got, err := watchdogFromEnv(c.micros, c.pid)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%v", c)
	}
	for _, micros := range []string{"soon", "0", "-1", "1.5", "9223372036854775807"} {
		_, err := watchdogFromEnv(micros, "")
		require.ErrorIs(t, err, ErrUsage, micros)
	}
}

func TestASupervisorWithoutASocketIsAnError(t *testing.T) {
	require.Error(t, notifySocket(filepath.Join(t.TempDir(), "absent"), "READY=1"))
}
