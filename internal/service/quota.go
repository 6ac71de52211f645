package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
)

// The quota of an identity counts what arrives, before it is judged or admitted. A protocol
// calls Admit for each call or frame, Charge for what it asks for, and Spend for what it
// answers; streams that the server fills call Pace. For an identity without a quota, and
// without authentication, each is a comparison with nil.

// connQuota is what a connection counts for: a connection of each identity that used it.
type connQuota struct {
	newest atomic.Pointer[auth.Usage] // of all; most connections have one

	mu  sync.Mutex
	all []*auth.Usage
}

// Admit counts a connection as one of its client, unless it does already, or refuses the client
// if its quota has no room for another.
func (s *Server) Admit(c *Caller) error {
	u := c.Identity.Usage()
	if u == nil || c.Conn == nil || c.Conn.quota.newest.Load() == u {
		return nil
	}
	if over := c.Conn.enterQuota(u); over != nil {
		return s.overQuota(u, over, 1)
	}
	return nil
}

func (c *Conn) enterQuota(u *auth.Usage) *auth.Exceeded {
	q := &c.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.closed.Load() {
		return nil // what came by it has no receiver any more
	}
	if !slices.Contains(q.all, u) {
		if over := u.Hold(auth.Connections); over != nil {
			return over
		}
		q.all = append(q.all, u)
	}
	q.newest.Store(u)
	return nil
}

// leaveQuotas is called when the connection is closed.
func (c *Conn) leaveQuotas() {
	q := &c.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.all {
		u.Release(auth.Connections)
	}
	q.all = nil
}

// Charge takes operations that came at a time, and the bytes of their request, from the quota of
// their client, or refuses them.
func (s *Server) Charge(identity *auth.Identity, now time.Time, ops, bytes int) error {
	u := identity.Usage()
	if u == nil {
		return nil
	}
	if over := u.Take(now, int64(ops), int64(bytes)); over != nil {
		return s.overQuota(u, over, ops)
	}
	return nil
}

// Spend takes the bytes of an answer.
func (s *Server) Spend(identity *auth.Identity, bytes int) {
	if u := identity.Usage(); u != nil && bytes > 0 {
		u.Spend(time.Now(), int64(bytes))
	}
}

// Pace takes operations and bytes that the server sends in a stream, at the rate of its client's
// quota: it waits, and refuses only what would have to wait for longer than a deadline.
func (s *Server) Pace(ctx context.Context, identity *auth.Identity, ops, bytes int) error {
	u := identity.Usage()
	if u == nil {
		return nil
	}
	ends := time.Now().Add(s.options.Deadline)
	for {
		now := time.Now()
		over := u.Take(now, int64(ops), int64(bytes))
		if over == nil {
			return nil
		}
		if now.Add(over.RetryAfter).After(ends) {
			return s.overQuota(u, over, ops)
		}
		timer := time.NewTimer(over.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// quotaFlags name the settings of a quota in errors.
var quotaFlags = map[auth.Resource]string{
	auth.Requests: "--max-requests", auth.Bytes: "--max-bytes", auth.Snapshots: "--max-snapshots", auth.Connections: "--max-connections",
}

// overQuota refuses operations of which nothing was done.
func (s *Server) overQuota(u *auth.Usage, over *auth.Exceeded, ops int) *Error {
	u.CountRefused(over.Resource, max(ops, 1))
	s.counters.shed(shedByQuota)
	e := overloaded("quota_"+over.Resource.String(), over.RetryAfter)
	e.Message = fmt.Sprintf("%v (kvd token limit %s); nothing was done, try again in %v", over, quotaFlags[over.Resource], roundUp(over.RetryAfter))
	return e
}

// roundUp rounds a time to what people read: to milliseconds, or to seconds.
func roundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
