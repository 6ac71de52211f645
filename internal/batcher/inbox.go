package batcher

import (
	"context"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
)

// Inbox is the bounded queue in front of one leader of writes. Any goroutine may call Put
// and Remove; only the leader calls Take.
type Inbox[T comparable] struct {
	policy Policy
	notify func()

	mu struct {
		sync.Mutex
		items  []T
		sizes  []size
		queued size
		first  time.Time     // when the oldest item arrived; kept only if timedLocked
		room   chan struct{} // closed when room was made; nil if no caller waits
		closed bool

		batches uint64                // batches taken so far
		waits   histogram.PowerCounts // in microseconds, of every SampleEvery-th batch
	}
}

// NewInbox returns an empty inbox. notify is called, with no lock held, after each Put:
// it tells the leader to call Take. It must not block.
func NewInbox[T comparable](p Policy, notify func()) *Inbox[T] {
	return &Inbox[T]{policy: p.withDefaults(), notify: notify}
}

// Put queues item, which counts as this many operations and bytes.
//
// While the inbox is full, Put waits for room: until ctx ends, or until a time, at which it rejects
// the item with a *kv.OverloadError. That is MaxQueueWait after the caller began to wait for room, in
// this inbox or another one. After Close Put returns kv.ErrClosed. On any error the item was not queued.
func (b *Inbox[T]) Put(ctx context.Context, until time.Time, item T, ops, bytes int) error {
	var deadline <-chan time.Time
	for {
		room, err := b.tryPut(item, size{ops, bytes})
		if err != nil {
			return err
		}
		if room == nil {
			b.notify()
			return nil
		}
		if deadline == nil {
			t := time.NewTimer(time.Until(until))
			defer t.Stop()
			deadline = t.C
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return &kv.OverloadError{Reason: "inbox_full", RetryAfter: MaxQueueWait}
		}
	}
}

// TryPut is Put that does not wait: it reports false if the inbox is full.
func (b *Inbox[T]) TryPut(item T, ops, bytes int) (queued bool, err error) {
	room, err := b.tryPut(item, size{ops, bytes})
	if room != nil || err != nil {
		return false, err
	}
	b.notify()
	return true, nil
}

// tryPut queues the item, or returns a channel that is closed when there may be room.
func (b *Inbox[T]) tryPut(item T, s size) (room chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return nil, kv.ErrClosed
	}
	if len(b.mu.items) > 0 && b.mu.queued.bytes+s.bytes > b.policy.QueueBytes {
		if b.mu.room == nil {
			b.mu.room = make(chan struct{})
		}
		return b.mu.room, nil
	}
	if len(b.mu.items) == 0 && b.timedLocked() {
		b.mu.first = time.Now()
	}
	b.mu.items = append(b.mu.items, item)
	b.mu.sizes = append(b.mu.sizes, s)
	b.mu.queued.ops += s.ops
	b.mu.queued.bytes += s.bytes
	return nil, nil
}

// timedLocked reports whether the arrival time of the first item of the next batch is
// needed.
func (b *Inbox[T]) timedLocked() bool { return b.policy.Linger > 0 || b.mu.batches%SampleEvery == 0 }

// Take appends the next batch to dst and returns it. A non-empty dst is the beginning
// of the batch, from the caller. If nothing is queued, or the queued items should
// linger, Take appends nothing; again then says how long to wait before the next call
// (zero: until the next notify).
func (b *Inbox[T]) Take(dst []T) (batch []T, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.items) == 0 {
		if len(dst) > 0 {
			b.countLocked(0)
		}
		return dst, 0
	}
	if b.policy.Linger > 0 && !b.mu.closed && !b.policy.full(b.mu.queued) {
		if rest := b.policy.Linger - time.Since(b.mu.first); rest > 0 {
			return dst, rest
		}
	}
	if b.mu.batches%SampleEvery == 0 {
		b.countLocked(time.Since(b.mu.first))
	} else {
		b.countLocked(0)
	}
	n := b.policy.cut(b.mu.sizes)
	dst = append(dst, b.mu.items[:n]...)
	b.dropLocked(0, n)
	if len(b.mu.items) > 0 && b.timedLocked() {
		b.mu.first = time.Now() // a later time than the true one, which was not recorded
	}
	return dst, 0
}

// countLocked counts a batch; wait is that of its first item, used if the batch is
// sampled.
func (b *Inbox[T]) countLocked(wait time.Duration) {
	if b.mu.batches%SampleEvery == 0 {
		b.mu.waits.Record(micros(wait))
	}
	b.mu.batches++
}

// Waits returns how long the first items of sampled batches waited, in microseconds:
// see SampleEvery.
func (b *Inbox[T]) Waits() histogram.PowerCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.waits
}

// Remove removes a queued item and reports whether it was still queued. If not, it was
// taken and will be served.
func (b *Inbox[T]) Remove(item T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, queued := range b.mu.items {
		if queued == item {
			b.dropLocked(i, i+1)
			return true
		}
	}
	return false
}

// dropLocked removes items [i, j) and wakes the callers that wait for room.
func (b *Inbox[T]) dropLocked(i, j int) {
	for _, s := range b.mu.sizes[i:j] {
		b.mu.queued.ops -= s.ops
		b.mu.queued.bytes -= s.bytes
	}
	rest := len(b.mu.items) - (j - i)
	copy(b.mu.items[i:], b.mu.items[j:])
	copy(b.mu.sizes[i:], b.mu.sizes[j:])
	clear(b.mu.items[rest:])
	b.mu.items, b.mu.sizes = b.mu.items[:rest], b.mu.sizes[:rest]
	if b.mu.room != nil {
		close(b.mu.room)
		b.mu.room = nil
	}
}

// Len returns the queued operations and bytes.
func (b *Inbox[T]) Len() (ops, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.queued.ops, b.mu.queued.bytes
}

// Close makes every later Put fail with kv.ErrClosed. Queued items stay and can be
// taken. Idempotent.
func (b *Inbox[T]) Close() {
	b.mu.Lock()
	b.mu.closed = true
	if b.mu.room != nil {
		close(b.mu.room)
		b.mu.room = nil
	}
	b.mu.Unlock()
	b.notify()
}
