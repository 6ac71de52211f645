package history

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Run describes what several clients do to a store until a number of transactions have
// been committed.
type Run struct {
	Plan
	Clients      int
	Transactions int
	Seed         uint64
	// Every, unless nil, is called after each committed transaction; n counts those of
	// all clients.
	Every func(n int64)
}

// Do runs the clients and returns their logs and counts when all have ended. It fails
// if a client reports an error, or if ctx ends.
func (r *Run) Do(ctx context.Context, s Store) (logs []*Log, tally Tally, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var committed atomic.Int64
	clients := make([]*Client, r.Clients)
	errs := make([]error, r.Clients)
	for i := range clients {
		clients[i] = NewClient(&r.Plan, s, i, r.Seed)
		clients[i].transacted = func() {
			if n := committed.Add(1); r.Every != nil {
				r.Every(n)
			}
		}
		all.Go(func() {
			for committed.Load() < int64(r.Transactions) {
				if errs[i] = clients[i].Step(ctx); errs[i] != nil {
					cancel() // stop the other clients
					return
				}
			}
		})
	}
	all.Wait()
	for _, c := range clients {
		tally.Add(&c.Tally)
		logs = append(logs, &c.Log)
	}
	return logs, tally, errors.Join(errs...)
}
