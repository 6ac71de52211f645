package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// process is a worker seen from outside. Each engine has a process of its own:
// the garbage of one is not collected while another is measured, and its memory
// can be told from theirs.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	in    *json.Encoder
	out   *json.Decoder
	ready loaded
}

// startProcess starts the worker of an engine. It loads while the caller listens
// with waitReady. ctx ends it.
func startProcess(ctx context.Context, s setup, profile string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "worker", "--cpu-profile", profile)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also one that is frozen
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: s.Engine, cmd: cmd, stdin: stdin, in: json.NewEncoder(stdin), out: json.NewDecoder(stdout)}
	if err := p.in.Encode(s); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// receive returns the next message that is no error.
func (p *process) receive() (m message, err error) {
	if err := p.out.Decode(&m); err != nil {
		return m, fmt.Errorf("%s: its worker ended: %w", p.name, err)
	}
	if m.Error != "" {
		return m, fmt.Errorf("%s: %s", p.name, m.Error)
	}
	return m, nil
}

// waitReady returns when the worker is ready, and tells how the load goes.
func (p *process) waitReady(progress func(entries int)) error {
	for {
		m, err := p.receive()
		if err != nil {
			return err
		}
		if m.Ready != nil {
			p.ready = *m.Ready
			return nil
		}
		progress(m.Loaded)
	}
}

// do lets the worker do a task.
func (p *process) do(t task) (result, error) { return p.doWatched(t, func(float64) {}) }

// doWatched lets the worker do a task and tells what rate each second had.
func (p *process) doWatched(t task, second func(opsPerSecond float64)) (result, error) {
	if err := p.in.Encode(t); err != nil {
		return result{}, fmt.Errorf("%s: %w", p.name, err)
	}
	for {
		m, err := p.receive()
		if err != nil {
			return result{}, err
		}
		if m.Result != nil {
			return *m.Result, nil
		}
		second(m.Second)
	}
}

// freeze stops all threads of the worker until thaw, so that nothing it does in
// the background disturbs a measurement of another, and none of its work gets done
// while nobody measures it.
func (p *process) freeze() error { return p.signal(syscall.SIGSTOP) }
func (p *process) thaw() error   { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s: signal its worker: %w", p.name, err)
	}
	return nil
}

// close ends the worker and waits for it.
func (p *process) close() error {
	if err := errors.Join(p.stdin.Close(), p.cmd.Wait()); err != nil {
		return fmt.Errorf("end the worker of %s: %w", p.name, err)
	}
	return nil
}
