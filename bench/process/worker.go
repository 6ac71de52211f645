// Package process starts, freezes and watches the processes of a comparison.
package process

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

// Worker is a child process of this program. It receives JSON objects on its standard
// input and answers with JSON objects on its standard output. Each contestant has a
// process of its own: the garbage of one is not collected while another is measured,
// and their memory can be told apart.
type Worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	in    *json.Encoder
	out   *json.Decoder
}

// StartWorker starts this program with args. name is used in errors. ctx ends it.
func StartWorker(ctx context.Context, name string, args ...string) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = DieWithUs()
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
	return &Worker{name, cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}, nil
}

// DieWithUs makes the kernel kill a child, even a frozen one, when this process ends.
func DieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// PID returns the id of the process.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Tell sends an object.
func (w *Worker) Tell(v any) error {
	if err := w.in.Encode(v); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

// Hear waits for the next object.
func (w *Worker) Hear(into any) error {
	if err := w.out.Decode(into); err != nil {
		return fmt.Errorf("%s: its worker ended: %w", w.name, err)
	}
	return nil
}

// Freeze stops all threads of the worker until Thaw, so that its background work
// neither disturbs the measurement of another contestant nor proceeds unmeasured.
func (w *Worker) Freeze() error { return w.signalled(Freeze(w.cmd.Process)) }

// Thaw resumes the worker.
func (w *Worker) Thaw() error { return w.signalled(w.cmd.Process.Signal(syscall.SIGCONT)) }

func (w *Worker) signalled(err error) error {
	if err != nil {
		return fmt.Errorf("%s: signal its worker: %w", w.name, err)
	}
	return nil
}

// Kill ends the worker at once. The caller must still call Close.
func (w *Worker) Kill() error { return w.cmd.Process.Kill() }

// Close ends the worker and waits for it.
func (w *Worker) Close() error {
	if err := errors.Join(w.stdin.Close(), w.cmd.Wait()); err != nil {
		return fmt.Errorf("end the worker of %s: %w", w.name, err)
	}
	return nil
}
