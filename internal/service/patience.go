package service

import (
	"context"
	"sync"
	"time"
)

// patience is the context of one group: a parent's, with a deadline. Unlike one of
// context.WithDeadline it has a timer only once somebody waits for it, which the
// store does not for a read that finds all in memory: one allocation in place of
// four.
type patience struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	waited context.Context // nil until somebody waits
	cancel context.CancelFunc
	ended  bool
}

func newPatience(parent context.Context, deadline time.Time) *patience {
	return &patience{parent: parent, deadline: deadline}
}

// end cancels the context.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.waited != nil {
		p.cancel()
	}
}

// Deadline implements context.Context.
func (p *patience) Deadline() (time.Time, bool) {
	if d, ok := p.parent.Deadline(); ok && d.Before(p.deadline) {
		return d, true
	}
	return p.deadline, true
}

// Done implements context.Context.
func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.waited != nil:
	case p.ended:
		p.waited, p.cancel = context.WithCancel(p.parent)
		p.cancel()
	default:
		p.waited, p.cancel = context.WithDeadline(p.parent, p.deadline)
	}
	return p.waited.Done()
}

// Err implements context.Context.
func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited != nil {
		return p.waited.Err()
	}
	if err := p.parent.Err(); err != nil {
		return err
	}
	if p.ended {
		return context.Canceled
	}
	if !time.Now().Before(p.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (p *patience) Value(key any) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited != nil {
		return p.waited.Value(key)
	}
	return p.parent.Value(key)
}
