package kvdbinary

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/testwait"
)

// Server is a running kvd serve.
type Server struct {
	Cmd *exec.Cmd
	// Ready is the line that says so, and Addr and Admin the addresses in it.
	Ready, Addr, Admin string
	// Out is what the process prints on standard output after that line, Log what it
	// prints on standard error.
	Out *bufio.Reader
	Log *Output
}

// Output collects what a running process prints. Safe for concurrent use.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns what was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Loopback returns an address of this machine at which the servers of this test process alone
// listen. The port of a server that has ended is soon given to another one. If that were a server of
// another test process, a client that still dials the port would go on there: its writes would
// be acknowledged, and be in another store.
func Loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1" // other systems have no further address
	}
	pid := os.Getpid()                                                     // below 2^22
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255) // 127.64.0.0 and up
}

// ServeArgs are the arguments of a server on a directory and on free ports of [Loopback], which
// logs as on a terminal. It waits as long as the test for the disk and for its own stop, which
// are slow on a loaded machine, unless flags say otherwise.
func ServeArgs(dir string, flags ...string) []string {
	free, patience := Loopback()+":0", testwait.Left().Round(time.Second).String()
	return append([]string{
		"serve", "--data", dir, "--listen", free, "--admin", free, "--log-format", "console",
		"--grace", patience, "--max-sync-time", patience,
	}, flags...)
}

var readyLine = regexp.MustCompile(`^READY listen=(\S+) admin=(\S+)\n$`)

// Serve starts cmd, which runs a server, and returns when it is ready. The caller ends
// it. If it ends before it is ready, the error wraps that of cmd.Wait, and Log has what
// it said.
func Serve(cmd *exec.Cmd) (*Server, error) {
	s := &Server{Cmd: cmd, Log: new(Output)}
	cmd.Stderr = s.Log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	s.Out = bufio.NewReader(out)
	if s.Ready, err = s.Out.ReadString('\n'); err != nil {
		return s, fmt.Errorf("kvd ended before it was ready: %w\n%s", cmd.Wait(), s.Log)
	}
	found := readyLine.FindStringSubmatch(s.Ready)
	if found == nil {
		_ = cmd.Process.Kill() // if it ended by itself, that is well too
		return s, fmt.Errorf("kvd says %q in place of READY; killed: %w\n%s", s.Ready, cmd.Wait(), s.Log)
	}
	s.Addr, s.Admin = found[1], found[2]
	return s, nil
}
