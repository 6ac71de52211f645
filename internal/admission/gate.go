package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Size is an amount of work.
type Size struct{ Ops, Bytes int }

// below reports whether there is room for more under a bound.
func (s Size) below(bound Size) bool { return s.Ops < bound.Ops && s.Bytes < bound.Bytes }

func (s Size) plus(more Size) Size  { return Size{s.Ops + more.Ops, s.Bytes + more.Bytes} }
func (s Size) minus(less Size) Size { return Size{s.Ops - less.Ops, s.Bytes - less.Bytes} }

// Bounds of a Gate. All four are above zero.
type Bounds struct {
	Inside  Size // of work let in at the same time
	Waiting Size // of work in all lines
}

// The reasons of the *kv.OverloadError that refuses work.
const (
	QueueTime = "queue_time" // it waited too long
	QueueFull = "queue_full" // the lines are full, or its client or peer has its share of them
)

// A Gate lets work in up to a bound and has the rest wait in a line for each
// client. Safe for concurrent use.
//
// A Gate has no goroutine and nothing to close: a caller ends its wait by its context.
type Gate struct {
	bounds Bounds

	// inside is the work inside: its operations in the upper half, its bytes in the
	// lower, and the top bit while work waits, when only a holder of mu adds to it.
	// So one word decides, without a lock while there is room.
	inside atomic.Uint64

	mu    sync.Mutex
	queue queue
	stats Stats
	// waiters are reused, with their timers and channels.
	waiters sync.Pool
}

const (
	bytesBits = 36
	bytesMask = 1<<bytesBits - 1
	opsMask   = 1<<(63-bytesBits) - 1
	anyWaits  = 1 << 63

	// maxOps and maxBytes are so that a bound and one piece of work above it fit.
	maxOps   = opsMask / 2
	maxBytes = bytesMask / 2
)

// New returns a Gate with nothing inside.
func New(b Bounds) *Gate {
	for _, s := range []Size{b.Inside, b.Waiting} {
		if s.Ops <= 0 || s.Bytes <= 0 || s.Ops > maxOps || s.Bytes > maxBytes {
			panic(fmt.Sprintf("admission: bound of %d operations and %d bytes, want 1 to %d and %d", s.Ops, s.Bytes, maxOps, maxBytes))
		}
	}
	g := &Gate{bounds: b}
	g.waiters.New = func() any { return newWaiter() }
	return g
}

func (s Size) word() uint64 {
	return uint64(min(s.Ops, maxOps))<<bytesBits | uint64(min(s.Bytes, maxBytes))
}

func sizeOf(word uint64) Size {
	return Size{int(word >> bytesBits & opsMask), int(word & bytesMask)}
}

// TryEnter lets work in if there is room and no work waits. It neither waits nor
// allocates nor reads a clock.
func (g *Gate) TryEnter(s Size) bool {
	for {
		inside := g.inside.Load()
		if inside&anyWaits != 0 || !sizeOf(inside).below(g.bounds.Inside) {
			return false
		}
		if g.inside.CompareAndSwap(inside, inside+s.word()) {
			return true
		}
	}
}

// Enter lets work of a client in, at its turn if there is no room. The caller must call
// Leave for work that was let in. Other work is refused with a *kv.OverloadError, which
// says why and when to try again, or with the error of ctx if that ended first.
func (g *Gate) Enter(ctx context.Context, c *Client, s Size) error {
	if g.TryEnter(s) {
		return nil
	}
	w := g.waiters.Get().(*waiter)
	defer g.waiters.Put(w)
	w.begin(ctx, c, s)
	defer w.end()
	if err := g.wait(w); err != nil {
		return err
	}
	select {
	case err := <-w.verdict:
		return err
	case <-ctx.Done():
	case <-w.timer.C:
	}
	return g.giveUp(ctx, w)
}

// Leave ends work of the size that was let in.
func (g *Gate) Leave(s Size) {
	inside := g.inside.Add(-s.word())
	if inside&anyWaits != 0 && sizeOf(inside).below(g.bounds.Inside) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.admitLocked()
	}
}

// wait puts w into the line of its client, unless there is no room in that.
func (g *Gate) wait(w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	room := g.bounds.Waiting.minus(g.queue.size)
	if !g.queue.mayWait(w.client, room) {
		g.stats.RefusedFull++
		return &kv.OverloadError{Reason: QueueFull, RetryAfter: g.queue.retryAfter(w.since)}
	}
	g.queue.push(w)
	g.inside.Or(anyWaits)
	g.admitLocked() // work may have left before its Leave could see w
	return nil
}

// giveUp takes w out of its line, because ctx ended or, if it did not, because w has
// waited for an interval. If w has left the line already, its verdict counts.
func (g *Gate) giveUp(ctx context.Context, w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case err := <-w.verdict:
		return err
	default:
	}
	err := ctx.Err()
	if err != nil {
		g.stats.GivenUp++
	} else {
		err = g.lateLocked(time.Now())
	}
	g.removeLocked(w)
	return err
}

// admitLocked refuses work that waited too long, then lets work in by turns as far as
// there is room.
func (g *Gate) admitLocked() {
	if g.queue.empty() || !g.roomLocked() {
		return
	}
	now := time.Now()
	limit := g.queue.limit(now)
	for !g.queue.empty() && now.Sub(g.queue.eldest().since) > limit {
		err := g.lateLocked(now)
		g.decideLocked(g.queue.eldest(), err)
	}
	for !g.queue.empty() && g.roomLocked() {
		w := g.queue.next()
		if w.expired(now) {
			g.stats.GivenUp++
			g.decideLocked(w, context.DeadlineExceeded)
			continue
		}
		w.charge()
		g.inside.Add(w.size.word())
		g.stats.admitted(now.Sub(w.since))
		g.decideLocked(w, nil)
	}
}

// roomLocked reports whether there is room inside. While work waits only the caller can
// take it.
func (g *Gate) roomLocked() bool { return sizeOf(g.inside.Load()).below(g.bounds.Inside) }

func (g *Gate) lateLocked(now time.Time) error {
	g.stats.RefusedLate++
	return &kv.OverloadError{Reason: QueueTime, RetryAfter: g.queue.retryAfter(now)}
}

// decideLocked ends the wait of w.
func (g *Gate) decideLocked(w *waiter, err error) {
	g.removeLocked(w)
	w.verdict <- err
}

// removeLocked takes w out of its line.
func (g *Gate) removeLocked(w *waiter) {
	g.queue.remove(w)
	if g.queue.empty() {
		g.inside.And(^uint64(anyWaits))
	}
}
