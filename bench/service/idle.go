package main

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/bench/service/client"
)

// idleClients is a process with many idle connections to a server. Nil: there is none.
type idleClients struct{ worker *process.Worker }

// holdIdle opens n connections to the server of a job, and waits until both sides are
// idle.
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
		err = process.Settle(ctx, append(job.ServerPIDs, w.PID())...)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &idleClients{w}, nil
}

// count returns how many connections were open all the time and still serve requests.
// It may be called once.
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
