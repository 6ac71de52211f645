package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// binary is kvd as it is shipped, built once for all tests.
var binary string

func TestMain(m *testing.M) { kvdbinary.VerifyTestMain(m, &binary) }

// result is what a command left behind.
type result struct {
	out, err string
	code     int
}

// command runs kvd to its end.
func command(t *testing.T, stdin string, env []string, args ...string) result {
	t.Helper()
	return commandFrom(t, strings.NewReader(stdin), env, args...)
}

// commandFrom is command with a standard input that may be a file.
func commandFrom(t *testing.T, stdin io.Reader, env []string, args ...string) result {
	t.Helper()
	ctx := testwait.Context(t)
	cmd := exec.CommandContext(ctx, binary, args...)
	// A command waits as long as the test, unless the test says otherwise.
	cmd.Env = append(append(cleanEnv(), envTimeout+"="+testwait.Left().String()), env...)
	cmd.Stdin = stdin
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err(), "kvd %v did not end; it said %s", args, errOut.String())
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// cleanEnv is the environment without what might steer kvd.
func cleanEnv() (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "KVD_") {
			env = append(env, entry)
		}
	}
	return env
}

// process is a running server.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	addr, admin string
	ready       string // the line itself
	stdout      []string
	read        sync.WaitGroup // reads what follows on standard output
	log         lockedBuffer
	ended       bool
}

// lockedBuffer collects what a running process prints.
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

var readyLine = regexp.MustCompile(`^READY listen=(\S+) admin=(\S+)$`)

// serve starts a server on dir, on free ports, and waits until it is ready. It
// is killed when the test ends, unless that was done before.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{t: t}
	args = append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--partitions", "3", "--memory", "64MiB"}, args...)
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = cleanEnv()
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if !p.ended {
			p.end(syscall.SIGKILL)
		}
	})
	lines := bufio.NewReader(out)
	p.ready, err = lines.ReadString('\n')
	if err != nil {
		require.Failf(t, "the server did not get ready", "exit code %d: %s", p.wait(), p.log.String())
	}
	found := readyLine.FindStringSubmatch(strings.TrimSuffix(p.ready, "\n"))
	require.NotNil(t, found, "the first line is %q", p.ready)
	p.addr, p.admin = found[1], found[2]
	p.read.Go(func() {
		rest, _ := io.ReadAll(lines) // an error is the end of the process
		p.stdout = strings.Split(string(rest), "\n")
	})
	return p
}

// end sends a signal and returns the exit code, -1 if the signal killed it.
func (p *process) end(signal syscall.Signal) int {
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	return p.wait()
}

func (p *process) wait() int {
	p.ended = true
	timer := time.AfterFunc(testwait.Left(), func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	p.read.Wait()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kvd runs a client command against the server.
func (p *process) kvd(args ...string) result {
	p.t.Helper()
	return p.kvdWith("", args...)
}

func (p *process) kvdWith(stdin string, args ...string) result {
	p.t.Helper()
	return command(p.t, stdin, []string{"KVD_ADDR=" + p.addr}, args...)
}

// must runs a client command that has to succeed, and returns what it printed.
func (p *process) must(args ...string) string {
	p.t.Helper()
	r := p.kvd(args...)
	require.Zero(p.t, r.code, "kvd %v: %s", args, r.err)
	return r.out
}
