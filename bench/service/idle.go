package main

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/bench/service/client"
)

// idleClients are a process that has many connections to a server, and does nothing
// with them. Nil: there is none.
type idleClients struct{ worker *process.Worker }

// holdIdle opens n connections to the server of a job, and waits until neither side has
// anything to do with them.
func holdIdle(ctx context.Context, n int, job *assignment) (*idleClients, error) {
	if n == 0 {
		return nil, nil
	}
	w, err := process.StartWorker(ctx, "idle connections", "worker")
	if err != nil {
		return nil, err
	}
	_, err = ask(w, &assignment{Hold: n, Options: client.Options{Address: job.Options.Address}})
	if err == nil {
		err = process.Settle(ctx, w.PID(), job.ServerPID)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &idleClients{w}, nil
}

// count tells how many connections were there all the time, and takes requests. It
// may be called once.
func (i *idleClients) count() (*int, error) {
	if i == nil {
		return nil, nil
	}
	r, err := ask(i.worker, struct{}{})
	if err != nil {
		return nil, err
	}
	return r.Held, nil
}

func (i *idleClients) end() error {
	if i == nil {
		return nil
	}
	return i.worker.Close()
}
