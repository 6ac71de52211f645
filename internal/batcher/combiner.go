package batcher

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Combiner lets callers serve each other's items. A caller serves its own item at once
// if fewer than the allowed runners are active. Otherwise it queues; when a runner
// ends, the first caller in the queue becomes the leader of the next batch.
//
// The queue holds one item for each blocked caller, so the number of admitted callers
// bounds it.
type Combiner[T any] struct {
	policy Policy
	serve  func(batch []T)
	// allowed is how many runners may be active, and how many operations a batch may have:
	// see Allow.
	allowed atomic.Uint64
	// sized: the policy has a number of operations of its own.
	sized bool

	mu struct {
		sync.Mutex
		running int
		queue   []*waiter[T]
		queued  size
		// While a leader lingers, callers join its batch: no other leader takes from the
		// queue. It waits on full, which the caller that fills the batch closes and sets
		// to nil; own is the size of the leader's item.
		lingering bool
		full      chan struct{}
		own       size

		batches uint64 // batches served so far
		sample  uint64 // the value of batches from which the next sample is due
	}
	waits   histogram.Powers // microseconds: see SampleEvery
	waiters sync.Pool
	batches sync.Pool
}

// waiter is one queued caller.
type waiter[T any] struct {
	item T
	size size
	// since is when the caller arrived, if it is the first of a sampled batch.
	since time.Time
	// turn receives exactly one value, after the waiter has left the queue.
	turn chan turn
}

type turn bool

const (
	served turn = false // another caller served the item
	lead   turn = true  // serve a batch that begins with your own item
)

// NewCombiner returns a Combiner whose batches are passed to serve, on the goroutine of
// one of the callers, with at most runners calls of serve at a time.
func NewCombiner[T any](p Policy, runners int, serve func(batch []T)) *Combiner[T] {
	c := &Combiner[T]{policy: p.withDefaults(), serve: serve, sized: p.MaxOps > 0}
	c.Allow(runners, 0)
	c.waiters.New = func() any { return &waiter[T]{turn: make(chan turn, 1)} }
	c.batches.New = func() any { return new([]T) }
	return c
}

// Allow changes how many calls of serve may run at a time, at least one, and how many
// operations each may have, where zero means the policy's number. A number that the policy
// sets explicitly is kept. If more are running, those that end are not replaced.
func (c *Combiner[T]) Allow(runners, ops int) {
	runners = max(1, cmp.Or(c.policy.Runners, runners))
	if ops == 0 || c.sized {
		ops = c.policy.MaxOps
	}
	if allowed := uint64(runners)<<32 | uint64(ops); allowed != c.allowed.Load() {
		c.allowed.Store(allowed)
	}
}

// mayRunLocked reports whether another runner may begin.
func (c *Combiner[T]) mayRunLocked() bool { return c.mu.running < int(c.allowed.Load()>>32) }

// maxOps returns how many operations a batch may have.
func (c *Combiner[T]) maxOps() int { return int(uint32(c.allowed.Load())) }

// Do returns when item has been served, by this goroutine or another.
//
// If ctx ends while the item is queued, Do removes it and returns the error of ctx: the
// item was not served. Once the item is part of a batch, Do waits for the batch, so
// that memory the item borrows from the caller is never used after Do returned.
func (c *Combiner[T]) Do(ctx context.Context, item T, ops, bytes int) error {
	c.mu.Lock()
	if c.policy.Alone || c.mayRunLocked() && len(c.mu.queue) == 0 && !c.mu.lingering {
		c.mu.running++
		since := c.sinceLocked()
		c.mu.Unlock()
		c.lead(item, size{ops, bytes}, since)
		return nil
	}
	w := c.waiters.Get().(*waiter[T])
	w.item, w.size = item, size{ops, bytes}
	if len(c.mu.queue) == 0 {
		w.since = c.sinceLocked()
	}
	c.mu.queue = append(c.mu.queue, w)
	c.mu.queued.ops += ops
	c.mu.queued.bytes += bytes
	if c.mu.full != nil && c.policy.full(c.mu.own.plus(c.mu.queued)) {
		close(c.mu.full)
		c.mu.full = nil
	}
	c.mu.Unlock()

	var t turn
	select {
	case t = <-w.turn:
	case <-ctx.Done():
		if c.leave(w) {
			c.release(w)
			return ctx.Err()
		}
		t = <-w.turn
	}
	if t == lead {
		runtime.Gosched() // callers about to queue make the batch larger
		c.lead(w.item, w.size, w.since)
	}
	c.release(w)
	return nil
}

func (c *Combiner[T]) release(w *waiter[T]) {
	var zero T
	w.item, w.since = zero, time.Time{}
	c.waiters.Put(w)
}

// leave removes w from the queue and reports whether it was still queued.
func (c *Combiner[T]) leave(w *waiter[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, queued := range c.mu.queue {
		if queued == w {
			c.dropLocked(i, i+1)
			return true
		}
	}
	return false
}

// sinceLocked returns the current time if the wait of the arriving caller is to be
// measured, else zero.
func (c *Combiner[T]) sinceLocked() time.Time {
	if c.mu.batches < c.mu.sample {
		return time.Time{}
	}
	c.mu.sample = c.mu.batches + SampleEvery
	return time.Now()
}

// Waits returns how long the first callers of sampled batches waited, in microseconds:
// see SampleEvery.
func (c *Combiner[T]) Waits() histogram.PowerCounts { return c.waits.Counts() }

// lead serves one batch that begins with the caller's own item, wakes the callers whose
// items were in it, and passes the lead on. since is the caller's arrival, if measured.
func (c *Combiner[T]) lead(own T, s size, since time.Time) {
	lingered := c.policy.Linger > 0 && !c.policy.Alone && c.linger(s)
	batch := c.batches.Get().(*[]T)
	*batch = append((*batch)[:0], own)
	mates := c.take(s, lingered, batch)
	if !since.IsZero() {
		c.waits.Record(micros(time.Since(since)))
	}
	c.serve(*batch)
	for _, w := range mates {
		w.turn <- served
	}
	clear(*batch)
	c.batches.Put(batch)
	c.next()
}

// take moves queued items to the batch, within the caps, unless they are the batch of
// another leader, which lingers. If it leaves some, and a runner is free, it makes the
// first of them a leader.
func (c *Combiner[T]) take(own size, lingered bool, batch *[]T) []*waiter[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.batches++
	if lingered {
		c.mu.lingering, c.mu.full = false, nil
	}
	if len(c.mu.queue) == 0 || c.mu.lingering {
		return nil
	}
	n, maxOps := 0, c.maxOps()
	for _, w := range c.mu.queue {
		own = own.plus(w.size)
		if own.ops > maxOps || own.bytes > c.policy.MaxBytes {
			break
		}
		if !w.since.IsZero() {
			c.mu.sample = c.mu.batches // w is not the first of its batch: sample the next batch instead
		}
		*batch = append(*batch, w.item)
		n++
	}
	mates := append([]*waiter[T](nil), c.mu.queue[:n]...)
	c.dropLocked(0, n)
	if len(c.mu.queue) > 0 && c.mayRunLocked() {
		c.mu.running++
		c.passLeadLocked()
	}
	return mates
}

// passLeadLocked makes the first caller in the queue a leader.
func (c *Combiner[T]) passLeadLocked() {
	w := c.mu.queue[0]
	c.dropLocked(0, 1)
	w.turn <- lead // never blocks: see waiter
}

func (c *Combiner[T]) dropLocked(i, j int) {
	for _, w := range c.mu.queue[i:j] {
		c.mu.queued.ops -= w.size.ops
		c.mu.queued.bytes -= w.size.bytes
	}
	rest := len(c.mu.queue) - (j - i)
	copy(c.mu.queue[i:], c.mu.queue[j:])
	clear(c.mu.queue[rest:])
	c.mu.queue = c.mu.queue[:rest]
}

// next makes the first caller in the queue a leader, or ends the runner if there is
// none, or if the queue is the batch of a leader that lingers.
func (c *Combiner[T]) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.running--
	if len(c.mu.queue) > 0 && !c.mu.lingering && c.mayRunLocked() {
		c.mu.running++
		c.passLeadLocked()
	}
}

// linger waits until the batch is full or the linger time has passed. It reports false,
// and has not waited, if the batch is full or another leader lingers.
func (c *Combiner[T]) linger(own size) bool {
	c.mu.Lock()
	if c.policy.full(own.plus(c.mu.queued)) || c.mu.lingering {
		c.mu.Unlock()
		return false
	}
	full := make(chan struct{})
	c.mu.lingering, c.mu.full, c.mu.own = true, full, own
	c.mu.Unlock()
	t := time.NewTimer(c.policy.Linger)
	defer t.Stop()
	select {
	case <-full:
	case <-t.C:
	}
	return true
}
