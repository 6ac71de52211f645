package frameapi

import (
	"context"
	"sync"
	"time"
)

// lazyDeadline is the context of one batch: its parent's, with a deadline. Unlike one of
// context.WithDeadline it has a timer only once Done is called, which the store does not
// do for a read that finds all in memory: one allocation in place of four.
type lazyDeadline struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	waited context.Context // nil until Done is called
	cancel context.CancelFunc
	ended  bool
}

func newLazyDeadline(parent context.Context, deadline time.Time) *lazyDeadline {
	return &lazyDeadline{parent: parent, deadline: deadline}
}

// end cancels the context.
func (d *lazyDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.waited != nil {
		d.cancel()
	}
}

// Deadline implements context.Context.
func (d *lazyDeadline) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.deadline) {
		return at, true
	}
	return d.deadline, true
}

// Done implements context.Context.
func (d *lazyDeadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.waited != nil:
	case d.ended:
		d.waited, d.cancel = context.WithCancel(d.parent)
		d.cancel()
	default:
		d.waited, d.cancel = context.WithDeadline(d.parent, d.deadline)
	}
	return d.waited.Done()
}

// Err implements context.Context.
func (d *lazyDeadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waited != nil {
		return d.waited.Err()
	}
	if err := d.parent.Err(); err != nil {
		return err
	}
	if d.ended {
		return context.Canceled
	}
	if !time.Now().Before(d.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (d *lazyDeadline) Value(key any) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waited != nil {
		return d.waited.Value(key)
	}
	return d.parent.Value(key)
}
