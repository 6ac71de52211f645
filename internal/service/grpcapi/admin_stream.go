package grpcapi

import (
	"time"

	"github.com/kvd-db/kvd/internal/service"
)

// stillAdmin returns an error unless the client of a long-lived stream is an administrator
// now: its token may have been revoked since the stream began.
func (c *call) stillAdmin() error {
	return c.api.server.Authorize(&c.work.Caller, c.work.Session, service.Admin, time.Now())
}

// awaitClient performs a send or receive of a long-lived stream, which waits for the client.
// The call is killed if that takes longer than a deadline.
func (c *call) awaitClient(io func() error) error {
	c.busy.Store(false)
	c.stall.Reset(c.api.server.Options().Deadline)
	err := io()
	c.busy.Store(true)
	c.stall.Stop()
	return err
}
