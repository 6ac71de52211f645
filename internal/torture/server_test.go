package torture

import (
	"bufio"
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// kvdBinary is the kvd that the tests run, built as it is shipped.
var kvdBinary string

func TestMain(m *testing.M) { kvdbinary.VerifyTestMain(m, &kvdBinary) }

// server is a running kvd.
type server struct {
	addr  string
	admin string
	cmd   *exec.Cmd
	log   *lockedBuffer
}

// lockedBuffer collects what a process prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts kvd on a directory and returns when it is ready.
func serve(t *testing.T, dir string, flags ...string) *server {
	t.Helper()
	return serveAs(t, kvdBinary, nil, dir, flags...)
}

// serveAs is serve by a program with arguments of its own before those of kvd.
func serveAs(t *testing.T, program string, own []string, dir string, flags ...string) *server {
	t.Helper()
	args := append(own, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	s := &server{cmd: exec.Command(program, append(args, flags...)...), log: &lockedBuffer{}}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		werr := s.cmd.Wait()
		t.Fatalf("kvd ended before it was ready: %v, %v\n%s", err, werr, s.log)
	}
	fields := strings.Fields(line)
	require.Len(t, fields, 3, "READY line: %q", line)
	require.Equal(t, "READY", fields[0])
	addr, found := strings.CutPrefix(fields[1], "listen=")
	require.True(t, found, "READY line: %q", line)
	s.addr = addr
	s.admin, found = strings.CutPrefix(fields[2], "admin=")
	require.True(t, found, "READY line: %q", line)
	return s
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
