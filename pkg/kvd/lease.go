package kvd

import (
	"context"
	"errors"
	"sync"
	"time"
)

// lease renews the lease of a snapshot. It renews when a third of the granted time has passed,
// and a renewal may take a fifth, so that there is time for two more if one fails. Between
// renewals there is only a timer, because most snapshots are closed before the first one.
type lease struct {
	open  context.Context // ends with the client
	renew func(context.Context) (granted time.Duration, err error)
	until time.Time // no renewals after this

	mu struct {
		sync.Mutex
		granted time.Duration
		timer   *time.Timer
		cancel  context.CancelFunc // of the renewal in flight, nil if none
		ended   bool
	}
}

// newLease starts to renew a lease that was just granted.
func newLease(open context.Context, granted, maxAge time.Duration, renew func(context.Context) (time.Duration, error)) *lease {
	l := &lease{open: open, renew: renew, until: time.Now().Add(maxAge)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.granted = granted
	l.mu.timer = time.AfterFunc(renewalOf(granted), l.keep)
	return l
}

// renewalOf returns when to renew a lease that was just granted. The minimum bounds the load if
// the server grants very short leases.
func renewalOf(granted time.Duration) time.Duration { return max(granted/3, 10*time.Millisecond) }

// keep renews the lease once and sets the timer for the next renewal.
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

// begin returns the context and the granted time for a renewal. The context is nil if the lease is not to be renewed.
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

// over reports whether the maximum age has passed.
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
