package torture

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// kvdBinary is the kvd that the tests run, built as it is shipped.
var kvdBinary string

func TestMain(m *testing.M) {
	if os.Getenv(attackCase) != "" {
		os.Exit(m.Run()) // it attacks a server that runs
	}
	kvdbinary.VerifyTestMain(m, &kvdBinary)
}

// server is a running kvd.
type server struct {
	addr  string
	admin string
	cmd   *exec.Cmd
	log   *kvdbinary.Output
}

// serve starts kvd on a directory and returns when it is ready.
func serve(t *testing.T, dir string, flags ...string) *server {
	t.Helper()
	return serveAs(t, kvdBinary, nil, dir, flags...)
}

// serveAs is serve by a program with arguments of its own before those of kvd.
func serveAs(t *testing.T, program string, own []string, dir string, flags ...string) *server {
	t.Helper()
	s, err := kvdbinary.Serve(exec.Command(program, append(own, kvdbinary.ServeArgs(dir, flags...)...)...))
	require.NoError(t, err)
	return &server{addr: s.Addr, admin: s.Admin, cmd: s.Cmd, log: s.Log}
}

// kill ends the server as a crash would.
func (s *server) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Kill())
	require.Error(t, s.cmd.Wait(), "a killed process does not exit with 0")
}

// stop ends the server as an operator would.
func (s *server) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), "SIGTERM is a clean stop\n%s", s.log)
}
