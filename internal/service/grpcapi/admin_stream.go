package grpcapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/service"
)

// recheckEvery is how often a stream that waits for its client looks whether the client may still
// have it. Guessed: as often as the file of tokens is read, about.
const recheckEvery = time.Second

// rights judges the client of a long-lived stream, again and again, until the client has lost the
// right to the call.
type rights struct {
	may func(*service.Call) error

	mu   sync.Mutex
	lost *service.Error // the first refusal; nil: there was none
}

// check returns the first refusal, or that of may. So the audit log has one line for a stream,
// although two goroutines judge its client.
func (r *rights) check(c *service.Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		return r.lost
	}
	err := r.may(c)
	if why, ok := errors.AsType[*service.Error](err); ok {
		r.lost = why
	}
	return err
}

// refusal returns why the client has lost the right to the call; nil: it has not.
func (r *rights) refusal() *service.Error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// watchRights begins to judge the client by may; stream is the context of the handler. The
// handler itself judges the client with stillMay before each answer. While the handler waits for
// the client, a goroutine judges the client once a second, and ends the call when the client has
// lost the right: a client that takes no answer, or sends no request, keeps the handler waiting
// for up to a deadline. The caller calls end before it returns.
func (c *call) watchRights(stream context.Context, may func(*service.Call) error) (end func()) {
	c.rights = &rights{may: may}
	if c.api.server.Options().Auth == nil {
		return func() {}
	}
	judged := service.Call{Caller: c.work.Caller, Session: c.work.Session} // the handler changes its own
	ctx, cancel := context.WithCancel(c)
	var watch sync.WaitGroup
	watch.Go(func() {
		ticker := time.NewTicker(recheckEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if c.busy.Load() {
				continue
			}
			if err := c.rights.check(&judged); err != nil {
				c.endWith(stream, err)
				return
			}
		}
	})
	return func() {
		cancel()
		watch.Wait()
	}
}

// stillMay returns an error unless the client of a long-lived stream may still have it.
func (c *call) stillMay() error {
	if c.rights == nil {
		return c.judge() // its handler has not begun, or sends nothing that needs a right to data
	}
	return c.rights.check(&c.work)
}

// endWith ends a call whose handler waits for the client, and tells the client why. gRPC has no
// exported way to do so: by itself it tells a client CANCELLED if the context of a call ends while
// the handler sends. So the status is sent first, by a method of the stream that gRPC has in the
// context; it ends the context.
func (c *call) endWith(stream context.Context, why error) {
	sender, ok := grpc.ServerTransportStreamFromContext(stream).(interface {
		WriteStatus(*status.Status) error
	})
	if ok {
		_ = sender.WriteStatus(status.Convert(c.api.errorOf(c.method, why))) // it fails if the connection is gone
	}
	c.kill(why)
}

// awaitClient performs a send or receive of a long-lived stream, which waits for the client.
// The call is killed if that takes longer than a deadline.
func (c *call) awaitClient(io func() error) error {
	c.stall.Reset(c.api.server.Options().Deadline)
	defer c.stall.Stop()
	return c.whileJudged(io)
}

// whileJudged performs a part of a long-lived stream, during which watchRights judges the client.
func (c *call) whileJudged(part func() error) error {
	c.busy.Store(false)
	defer c.busy.Store(true)
	return part()
}
