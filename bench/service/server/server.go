// Package server starts the compared services, each as a process of its own on a
// loopback address, with its data below a directory.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvd-db/kvd/bench/process"
)

// Kind is a service and its configuration.
type Kind struct {
	Name string
	// Binary is looked up in $PATH, unless it is a path.
	Binary string
	// args returns the command line for a free address and an empty directory.
	args func(address, dir string) []string
	// announces says that the server chooses its address and prints READY listen=ADDR.
	announces bool
	// nodes makes the kinds of the processes of a cluster, which has no args of its own; nil: the
	// service is one process.
	nodes func() ([]*Kind, error)
	// prepare makes what the server needs in its empty directory; nil: nothing.
	prepare func(ctx context.Context, dir string) error
	// user is the user that the server runs as; nil: that of this process.
	user *syscall.Credential
}

// Missing reports that the binary of a service was not found.
type Missing struct{ Kind *Kind }

func (m *Missing) Error() string {
	return fmt.Sprintf("%s: there is no %s", m.Kind.Name, m.Kind.Binary)
}

// Cluster reports whether the service has several processes.
func (k *Kind) Cluster() bool { return k.nodes != nil }

// Find returns a *Missing if the service cannot be started here.
func (k *Kind) Find() error {
	if _, err := exec.LookPath(k.Binary); err != nil {
		return &Missing{k}
	}
	return nil
}

// Server is a running service.
type Server struct {
	Kind    *Kind
	Address string    // of a cluster those of all nodes, separated by commas
	nodes   []*Server // of a cluster, which has none of what follows but dir
	cmd     *exec.Cmd
	dir     string
	log     *os.File
	ended   chan struct{} // closed when the process has ended
	err     error         // of the process, valid after ended is closed
}

// startTime is how long a server may take until it answers.
const startTime = 20 * time.Second

// Start starts a service below dir, and returns when it accepts connections. ctx ends
// it.
func Start(ctx context.Context, k *Kind, dir string) (s *Server, err error) {
	if err := k.Find(); err != nil {
		return nil, err
	}
	if k.Cluster() {
		return startNodes(ctx, k, dir)
	}
	s = &Server{Kind: k, dir: filepath.Join(dir, k.Name), Address: "127.0.0.1:0", ended: make(chan struct{})}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	if !k.announces {
		if s.Address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	if k.prepare != nil {
		if err := k.prepare(ctx, s.dir); err != nil {
			return nil, fmt.Errorf("%s: %w", k.Name, errors.Join(err, os.RemoveAll(s.dir)))
		}
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, k.Binary, k.args(s.Address, s.dir)...)
	s.cmd.SysProcAttr = process.DieWithUs()
	s.cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal must not end the server before its clients
	if s.cmd.SysProcAttr.Credential = k.user; k.user != nil {
		s.cmd.Dir = "/" // the working directory may be closed to the user
	}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	announced := make(chan string, 1)
	go s.follow(bufio.NewScanner(out), announced)
	if err := s.awaitReady(ctx, announced); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// follow reads the server's output until it ends.
func (s *Server) follow(lines *bufio.Scanner, announced chan<- string) {
	defer close(s.ended)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "READY listen="); ok && s.Kind.announces {
			address, _, _ := strings.Cut(rest, " ")
			announced <- address
		}
	}
	s.err = s.cmd.Wait()
}

func (s *Server) awaitReady(ctx context.Context, announced <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if s.Kind.announces {
		select {
		case s.Address = <-announced:
			return nil
		case <-s.ended:
			return s.whyEnded()
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready: %w", s.Kind.Name, ctx.Err())
		}
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if c, err := net.Dial("tcp", s.Address); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-s.ended:
			return s.whyEnded()
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready: %w", s.Kind.Name, ctx.Err())
		}
	}
}

// whyEnded describes the end of a server that should still run, with the last lines of
// its log.
func (s *Server) whyEnded() error {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %w\n%s", s.Kind.Name, errors.Join(s.err, errEnded), text[max(0, len(text)-2000):])
}

var errEnded = errors.New("it was not told to")

// PIDs returns the ids of the processes.
func (s *Server) PIDs() []int {
	if s.nodes == nil {
		return []int{s.cmd.Process.Pid}
	}
	var pids []int
	for _, node := range s.nodes {
		pids = append(pids, node.PIDs()...)
	}
	return pids
}

// Freeze stops all threads of the server until Thaw, so that its background work
// neither disturbs the measurement of another contestant nor proceeds unmeasured.
func (s *Server) Freeze() error { return s.signal(process.Freeze) }

// Thaw resumes the server.
func (s *Server) Thaw() error {
	return s.signal(func(p *os.Process) error { return p.Signal(syscall.SIGCONT) })
}

func (s *Server) signal(send func(*os.Process) error) error {
	if s.nodes != nil {
		return s.each(func(node *Server) error { return node.signal(send) })
	}
	err := send(s.cmd.Process)
	if errors.Is(err, os.ErrProcessDone) {
		<-s.ended
		return s.whyEnded()
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", s.Kind.Name, err)
	}
	return nil
}

// Settle returns when the server has been idle for a while: see process.Settle.
func (s *Server) Settle(ctx context.Context) error { return process.Settle(ctx, s.PIDs()...) }

// stopTime is how long a server may take to end.
const stopTime = 20 * time.Second

// Stop ends the server and removes its files. It ignores the exit status.
func (s *Server) Stop() error {
	if s.nodes != nil {
		return errors.Join(s.each((*Server).Stop), os.RemoveAll(s.dir))
	}
	for _, sig := range []os.Signal{syscall.SIGCONT, syscall.SIGTERM} {
		if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-s.ended:
	case <-time.After(stopTime):
		if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-s.ended
	}
	return errors.Join(s.log.Close(), os.RemoveAll(s.dir))
}

// startNodes starts the processes of a cluster.
func startNodes(ctx context.Context, k *Kind, dir string) (*Server, error) {
	kinds, err := k.nodes()
	if err != nil {
		return nil, err
	}
	s := &Server{Kind: k, dir: filepath.Join(dir, k.Name)}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	var addresses []string
	for _, kind := range kinds {
		node, err := Start(ctx, kind, s.dir)
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.nodes, addresses = append(s.nodes, node), append(addresses, node.Address)
	}
	s.Address = strings.Join(addresses, ",")
	return s, nil
}

// each calls do for the nodes at the same time.
func (s *Server) each(do func(*Server) error) error {
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, node := range s.nodes {
		all.Go(func() { errs[i] = do(node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// freeAddress returns an unused address. If another process takes it first, the server
// does not start, and reports that.
func freeAddress() (string, error) {
	all, err := freeAddresses(1)
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// freeAddresses returns n different ones.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
