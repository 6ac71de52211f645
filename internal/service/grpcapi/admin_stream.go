package grpcapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/service"
)

// recheckEvery is how often a stream that waits for its client looks whether the client may still
// have it. Guessed: as often as the file of tokens is read, about.
const recheckEvery = time.Second

// watchRights ends the call, which is a long-lived stream, if its client loses the right to it
// while the call waits for the client, who may never come back: the handler itself looks before
// each answer only. The wait must last for two looks, so that a client that takes its answers is
// told why by the handler; gRPC tells one that does not take them CANCELLED. may is called by
// another goroutine. The caller calls end before it returns.
func (c *call) watchRights(may func(*service.Call) error) (end func()) {
	if c.api.server.Options().Auth == nil {
		return func() {}
	}
	caller, session := c.work.Caller, c.work.Session // the handler changes its own
	ctx, cancel := context.WithCancel(c)
	var watch sync.WaitGroup
	watch.Go(func() {
		ticker := time.NewTicker(recheckEvery)
		defer ticker.Stop()
		var refused uint64 // the wait in which the last look was refused; 0: it was not
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			wait := c.clientWaits.Load()
			if c.busy.Load() {
				refused = 0
				continue
			}
			err := may(&service.Call{Caller: caller, Session: session})
			switch {
			case err == nil:
				refused = 0
			case refused == wait:
				c.kill(err)
				return
			default:
				refused = wait
			}
		}
	})
	return func() {
		cancel()
		watch.Wait()
	}
}

// mayAdminister is stillAdmin for watchRights.
func (a *api) mayAdminister(c *service.Call) error {
	return a.server.Authorize(&c.Caller, c.Session, service.Admin, time.Now())
}

// lostRights returns why watchRights has ended a call; nil: it has not.
func lostRights(ctx context.Context) error {
	why, ok := errors.AsType[*service.Error](context.Cause(ctx))
	if ok && (why.Code == service.Unauthenticated || why.Code == service.PermissionDenied) {
		return why
	}
	return nil
}

// waitForClient is called before a long-lived stream waits for its client.
func (c *call) waitForClient() {
	c.clientWaits.Add(1)
	c.busy.Store(false)
}

// stillAdmin returns an error unless the client of a long-lived stream is an administrator
// now: its token may have been revoked since the stream began.
func (c *call) stillAdmin() error {
	return c.api.server.Authorize(&c.work.Caller, c.work.Session, service.Admin, time.Now())
}

// awaitClient performs a send or receive of a long-lived stream, which waits for the client.
// The call is killed if that takes longer than a deadline.
func (c *call) awaitClient(io func() error) error {
	c.waitForClient()
	c.stall.Reset(c.api.server.Options().Deadline)
	err := io()
	c.busy.Store(true)
	c.stall.Stop()
	return err
}
