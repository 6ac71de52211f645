package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// binary is kvd as it is shipped, built once for all tests.
var binary string

func TestMain(m *testing.M) { kvdbinary.VerifyTestMain(m, &binary) }

// result is the output and the exit code of a command.
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
	secrets.requireAbsent(t, "standard error of a command", errOut.String())
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// secrets are the tokens that tests have made, none of which may be in a log.
var secrets tokenSecrets

type tokenSecrets struct {
	mu  sync.Mutex
	all []string
}

func (s *tokenSecrets) add(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, token[strings.LastIndex(token, ".")+1:])
}

func (s *tokenSecrets) requireAbsent(t *testing.T, what, text string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.all {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret of a token", what)
		}
	}
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
	log         *kvdbinary.Output
	ended       bool
}

// serve starts a server on dir, on free ports, and waits until it is ready. It
// is killed when the test ends, unless that was done before.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(binary, kvdbinary.ServeArgs(dir, append([]string{"--partitions", "3", "--memory", "64MiB"}, args...)...)...)
	cmd.Env = cleanEnv()
	s, err := kvdbinary.Serve(cmd)
	require.NoError(t, err)
	p := &process{t: t, cmd: cmd, addr: s.Addr, admin: s.Admin, ready: s.Ready, log: s.Log}
	t.Cleanup(func() {
		if !p.ended {
			p.end(syscall.SIGKILL)
		}
		secrets.requireAbsent(t, "the server's log", p.log.String())
		if i := slices.Index(args, "--audit-log"); i >= 0 {
			files, err := filepath.Glob(args[i+1] + "*")
			require.NoError(t, err)
			for _, name := range files {
				text, err := os.ReadFile(name)
				require.NoError(t, err)
				secrets.requireAbsent(t, name, string(text))
			}
		}
	})
	p.read.Go(func() {
		rest, _ := io.ReadAll(s.Out) // an error is the end of the process
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

// saying runs a command that fails once its timeout is over, with longer and longer timeouts until
// its error says this, and fails t if it never does.
func saying(t *testing.T, says string, timeout time.Duration, run func(timeout string) result) (r result) {
	t.Helper()
	testwait.Doubling(t, timeout, func(d time.Duration) (said bool) {
		r = run(d.String())
		if said = strings.Contains(r.err, says); !said {
			t.Logf("with a timeout of %v: %s", d, r.err)
		}
		return said
	})
	return r
}

// client returns a client of the server in this process, for what would take many commands.
func (p *process) client(opts ...kvd.Option) *kvd.Client {
	p.t.Helper()
	client, err := kvd.Open(p.addr, append(opts, kvd.WithTimeout(testwait.Left()))...)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, client.Close()) })
	return client
}

// logs waits until the server has logged this.
func (p *process) logs(what string) {
	p.t.Helper()
	testwait.Until(p.t, func() bool { return strings.Contains(p.log.String(), what) }, what)
}

// must runs a client command that has to succeed, and returns what it printed.
func (p *process) must(args ...string) string {
	p.t.Helper()
	r := p.kvd(args...)
	require.Zero(p.t, r.code, "kvd %v: %s", args, r.err)
	return r.out
}
