package kvd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// A snapshot whose caller has left before the answer came is given back when that comes. Otherwise
// callers that leave soon take all snapshots for as long as the leases last.
func TestASnapshotWhoseCallerHasLeftIsGivenBack(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered, leave := make(chan struct{}), make(chan struct{})
	c := serve(t, store, service.Options{})
	db := c.open(t)
	put(t, db, "k", "v")
	store.OnSnapshot = func(context.Context) error {
		close(entered)
		<-leave
		return nil
	}
	ctx, cancel := context.WithCancel(testwait.Context(t))
	left := make(chan error, 1)
	go func() {
		_, err := db.Snapshot(ctx)
		left <- err
	}()
	<-entered
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	close(leave)
	testwait.Until(t, func() bool { // the server has answered
		for _, r := range c.server.Stats().Requests {
			if r.Method == "Pipeline.BeginSnapshot" && r.Code == service.OK {
				return true
			}
		}
		return false
	})
	testwait.Until(t, func() bool { return store.SnapshotCount() == 0 }, "the server has the snapshot back")
}
