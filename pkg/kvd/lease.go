package kvd

import (
	"context"
	"errors"
	"sync"
	"time"
)

// lease keeps alive what the server grants for a limited time. It is renewed when
// a third of it has passed and may take a fifth, so that a renewal that is lost
// leaves time for another two. Nothing runs in between: most snapshots are closed
// before.
type lease struct {
	open  context.Context // ends with the client
	renew func(context.Context) (granted time.Duration, err error)
	until time.Time // not renewed from then on

	mu struct {
		sync.Mutex
		granted time.Duration
		timer   *time.Timer
		cancel  context.CancelFunc // of the renewal under way, if there is one
		ended   bool
	}
}

// newLease begins to keep up a lease that was just granted.
func newLease(open context.Context, granted, maxAge time.Duration, renew func(context.Context) (time.Duration, error)) *lease {
	l := &lease{open: open, renew: renew, until: time.Now().Add(maxAge)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.granted = granted
	l.mu.timer = time.AfterFunc(renewalOf(granted), l.keep)
	return l
}

// renewalOf is when a lease that was just granted is to be renewed. A server that
// grants next to nothing is not asked all the time.
func renewalOf(granted time.Duration) time.Duration { return max(granted/3, 10*time.Millisecond) }

// keep renews the lease once and sets the timer for the next time.
func (l *lease) keep() {
	ctx, granted := l.begin()
	if ctx == nil {
		return
	}
	renewed, err := l.renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cancel()
	l.mu.cancel = nil
	wait := renewalOf(renewed)
	switch {
	case l.mu.ended || errors.Is(err, ErrVersionGone) || errors.Is(err, ErrClosed):
		return
	case err != nil:
		wait = max(granted/10, 10*time.Millisecond)
	default:
		l.mu.granted = renewed
	}
	l.mu.timer.Reset(wait)
}

// begin returns what a renewal needs; the context is nil if there is to be none.
func (l *lease) begin() (context.Context, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended || l.open.Err() != nil || l.over() {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(l.open, l.mu.granted/5)
	l.mu.cancel = cancel
	return ctx, l.mu.granted
}

// over reports whether the lease has had its time.
func (l *lease) over() bool { return !time.Now().Before(l.until) }

// end stops the renewals. It is idempotent.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ended = true
	l.mu.timer.Stop()
	if l.mu.cancel != nil {
		l.mu.cancel()
	}
}
