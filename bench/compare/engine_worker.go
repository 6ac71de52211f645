package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/bench/process"
)

// engineWorker is the process of an engine, as seen by its parent.
type engineWorker struct {
	name string
	*process.Worker
	ready loaded
}

// startEngine starts the worker of an engine. The worker loads its store; the caller
// must call waitReady. ctx ends the worker.
func startEngine(ctx context.Context, s setup, profile string) (*engineWorker, error) {
	w, err := process.StartWorker(ctx, s.Engine, "worker", "--cpu-profile", profile)
	if err != nil {
		return nil, err
	}
	if err := w.Tell(s); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &engineWorker{name: s.Engine, Worker: w}, nil
}

// receive returns the next message that is not an error.
func (w *engineWorker) receive() (m message, err error) {
	if err := w.Hear(&m); err != nil {
		return m, err
	}
	if m.Error != "" {
		return m, fmt.Errorf("%s: %s", w.name, m.Error)
	}
	return m, nil
}

// waitReady returns when the worker is ready, and reports the progress of the load.
func (w *engineWorker) waitReady(progress func(entries int)) error {
	for {
		m, err := w.receive()
		if err != nil {
			return err
		}
		if m.Ready != nil {
			w.ready = *m.Ready
			return nil
		}
		progress(m.Loaded)
	}
}

// do makes the worker perform a task.
func (w *engineWorker) do(t task) (result, error) { return w.doWatched(t, func(float64) {}) }

// doThawed makes a frozen worker perform a task.
func (w *engineWorker) doThawed(t task) (result, error) {
	if err := w.Thaw(); err != nil {
		return result{}, err
	}
	r, err := w.do(t)
	if err != nil {
		return r, err
	}
	return r, w.Freeze()
}

// doWatched makes the worker perform a task and reports the rate of each second.
func (w *engineWorker) doWatched(t task, second func(opsPerSecond float64)) (result, error) {
	if err := w.Tell(t); err != nil {
		return result{}, err
	}
	for {
		m, err := w.receive()
		if err != nil {
			return result{}, err
		}
		if m.Result != nil {
			return *m.Result, nil
		}
		second(m.Second)
	}
}
