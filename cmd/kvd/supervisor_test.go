package main

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// The datagrams of sd_notify(3), as a service of Type=notify with a watchdog sends them.
func TestAServerUnderSystemdReportsItsState(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	states := make(chan string, 1000)
	go func() {
		defer close(states)
		for b := make([]byte, 4096); ; {
			n, err := conn.Read(b)
			if err != nil {
				return // the connection was closed
			}
			states <- string(b[:n])
		}
	}()
	until := func(want string) {
		t.Helper()
		for state := range states {
			if strings.Contains("\n"+state+"\n", "\n"+want) {
				return
			}
		}
	}

	cmd := exec.Command(binary, kvdbinary.ServeArgs(t.TempDir(), "--memory", "64MiB")...)
	cmd.Env = append(cleanEnv(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000")
	s, err := kvdbinary.Serve(cmd)
	require.NoError(t, err)
	until("READY=1\n")
	for range 3 {
		until("WATCHDOG=1\n")
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	until("STOPPING=1\n")
	_, err = s.Out.ReadString(0)
	assert.Error(t, err, "the end of the output")
	assert.NoError(t, cmd.Wait())
}

func TestAWatchdogTimeThatIsNoNumberIsRefused(t *testing.T) {
	r := command(t, "", []string{"NOTIFY_SOCKET=/nowhere", "WATCHDOG_USEC=soon"}, "serve", "--dev")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "WATCHDOG_USEC")
}
