package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be a worker that says what it was told.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "parrot" {
		in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		for {
			var v any
			if in.Decode(&v) != nil || out.Encode(v) != nil {
				os.Exit(0)
			}
		}
	}
	os.Exit(m.Run())
}

func TestAWorkerHearsAndTells(t *testing.T) {
	w, err := StartWorker(t.Context(), "parrot", "parrot")
	require.NoError(t, err)
	require.NoError(t, w.Tell("hello"))
	var said string
	require.NoError(t, w.Hear(&said))
	assert.Equal(t, "hello", said)
	require.NoError(t, w.Close())
	require.ErrorContains(t, w.Hear(&said), "parrot: its worker ended")
}

func TestAKilledWorkerIsReported(t *testing.T) {
	w, err := StartWorker(t.Context(), "parrot", "parrot")
	require.NoError(t, err)
	require.NoError(t, w.Kill())
	require.ErrorContains(t, w.Hear(new(string)), "parrot")
	require.Error(t, w.Close())
}

func TestAFrozenProcessDoesNothing(t *testing.T) {
	w, err := StartWorker(t.Context(), "parrot", "parrot")
	require.NoError(t, err)
	for range 20 {
		require.NoError(t, w.Freeze())
		stopped, err := allStopped(w.PID())
		require.NoError(t, err)
		require.True(t, stopped)
		require.NoError(t, w.Tell("hello"))
		require.NoError(t, w.Thaw())
		var said string
		require.NoError(t, w.Hear(&said))
	}
	require.NoError(t, w.Kill())
	require.Error(t, w.Close())
	require.ErrorIs(t, w.Freeze(), os.ErrProcessDone)
	_, err = allStopped(w.PID())
	require.ErrorContains(t, err, "has ended")
}

func TestProcessorTimeOfAProcessIsThatWhichItSees(t *testing.T) {
	for begin := OwnCPU(); OwnCPU()-begin < 100*time.Millisecond; {
		_ = fmt.Sprint(begin)
	}
	const tick = 10 * time.Millisecond // the system rounds user and system time down to it
	before := OwnCPU()
	seen, err := CPU(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, seen, before-2*tick)
	assert.LessOrEqual(t, seen, OwnCPU()+tick)

	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	_, err = CPU(ended.Process.Pid)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMemoryOfAProcess(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	assert.Positive(t, StatusBytes(pid, "VmRSS:"))
	assert.Zero(t, StatusBytes(Self, "NoSuchField:"))
	garbage := make([]byte, 64<<20)
	for i := 0; i < len(garbage); i += 4096 {
		garbage[i] = 1
	}
	assert.GreaterOrEqual(t, StatusBytes(pid, "VmHWM:"), int64(64<<20))
	require.NoError(t, ForgetPeak(os.Getpid()))
	assert.Less(t, StatusBytes(pid, "VmHWM:"), StatusBytes(pid, "VmRSS:")+32<<20)
}
