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
// calls Admit for each call or frame, Charge for what it asks for, and Settle when it has the
// answer; streams that the server fills call Pace. For an identity without a quota, and
// without authentication, each is a comparison with nil.
//
// The size of an answer is known once the value is found, and its bytes are taken then, before
// the value is copied (callMeter). While bytes are owed no value is read, so what is sent
// exceeds the rate and the burst by less than one answer, whatever runs at the same time.

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

// callMeter takes the values that a call reads from the quota of its client. It implements
// kv.Meter.
type callMeter struct {
	usage   *auth.Usage
	request int64                         // Call.Charged
	over    atomic.Pointer[auth.Exceeded] // why a value was refused
}

// Take implements kv.Meter.
func (m *callMeter) Take(bytes int64) bool {
	over := m.usage.TakeAnswer(time.Now(), bytes, m.request)
	if over != nil {
		m.over.Store(over)
	}
	return over == nil
}

// Give implements kv.Meter.
func (m *callMeter) Give(bytes int64) { m.usage.Settle(time.Now(), bytes, 0) }

// metered has the values that the call reads taken from the quota of its client, if it has one.
func (c *Call) metered() {
	if u := c.Identity.Usage(); u != nil {
		c.meter.usage, c.meter.request = u, int64(c.Charged)
		c.meter.over.Store(nil)
		c.Budget.Meter(&c.meter)
	}
}

// Unread returns why the quota of the client refused a value in the last call of the store, and
// counts the operations that were to read values. Nil: it refused none.
func (s *Server) Unread(c *Call, ops int) error {
	if c.meter.usage == nil {
		return nil
	}
	if over := c.meter.over.Swap(nil); over != nil {
		return s.overQuota(c.meter.usage, over, ops)
	}
	return nil
}

// Settle is called when the answers of a call are made, which have so many bytes: what was taken
// from the quota for values that are not sent is given back, and the rest of the answers is
// taken.
func (s *Server) Settle(c *Call, bytes int) {
	if u := c.Identity.Usage(); u != nil {
		u.Settle(time.Now(), c.Budget.Settle(), int64(bytes))
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
