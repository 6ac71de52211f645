// Package memory bounds the memory that requests hold.
//
// A server has one [Account]. Bytes are taken from it before they are allocated for a
// request, and given back when the memory is free again: the bytes of the request, values
// that were read, batches of scans, and answers until the transport has written them.
// Memtables and caches have separate bounds.
//
// # Shares
//
// Pieces of more than [SmallBytes] may use three quarters of the account. The rest is for
// small pieces, so that small requests are served while large ones fill their share.
//
// A request that exceeds the bound is served alone: it gets its bytes if all others
// together hold at most a quarter of the account. So every request within the server's
// limits can be served, and the account holds at most its limit, or a quarter of it and the
// largest request.
//
// # Garbage
//
// Memory that was given back is occupied until the garbage collector has freed it. So pieces of
// more than [SmallBytes] still count then, and may exceed the limit by a quarter of it together with
// what is taken: a large piece beyond that is reserved as usual, but its caller waits for a
// collection before it allocates.
//
// The memory of an answer that a transport has dropped without a word is given back by the garbage
// collector itself. So a request that has waited for bytes in vain has it run, at most once in
// [Patience].
package memory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// SmallBytes is the largest piece that counts as small. Guessed: a full frame of
// requests, or of the answers to them.
const SmallBytes = 64 << 10

const (
	// smallShare: a quarter of the account is reserved for small pieces.
	smallShare = 4
	// aloneShare: others may hold at most a quarter of the account when a request that
	// exceeds its bound is served.
	aloneShare = 4
	// Patience is how long Wait waits. Guessed: several times what it takes to send
	// the largest answer.
	Patience = time.Second
)

// Account counts bytes against a limit. Safe for concurrent use.
type Account struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
	garbage garbage

	waiting atomic.Int32 // length of queue
	mu      sync.Mutex
	queue   []*waiter // the first is served first
}

// waiter waits for bytes. ready is closed when it has them.
type waiter struct {
	bytes, held int64
	ready       chan struct{}
}

// New returns an account of limit bytes.
func New(limit int64) *Account { return &Account{limit: limit} }

// Limit returns the size of the account.
func (a *Account) Limit() int64 { return a.limit }

// Used returns the number of bytes that are taken.
func (a *Account) Used() int64 { return a.used.Load() }

// Refused returns how many requests for bytes were refused.
func (a *Account) Refused() uint64 { return a.refused.Load() }

// Take takes bytes for a request that already holds held, or returns false if there is no
// room. It waits for no other request, but see Collect.
func (a *Account) Take(bytes, held int64) bool {
	// While requests wait, only small pieces overtake them.
	if (a.waiting.Load() == 0 || bytes <= SmallBytes) && a.take(bytes, held) {
		a.Collect(bytes)
		return true
	}
	a.refused.Add(1)
	return false
}

func (a *Account) take(bytes, held int64) bool {
	for {
		used := a.used.Load()
		if !a.fits(used, bytes, held) {
			return false
		}
		if a.used.CompareAndSwap(used, used+bytes) {
			return true
		}
	}
}

// fits reports whether a request may take bytes when used are taken, of which it holds
// held.
func (a *Account) fits(used, bytes, held int64) bool {
	bound := a.limit
	if bytes > SmallBytes {
		bound -= a.limit / smallShare
	}
	return used+bytes <= bound || used-held <= a.limit/aloneShare && held+bytes > bound-a.limit/aloneShare
}

// Add takes bytes that are already in memory, beyond the limit if need be. If they are yet to be
// allocated, the caller then calls Collect.
func (a *Account) Add(bytes int64) { a.used.Add(bytes) }

// Collect waits for a garbage collection if a piece that was taken, and is about to be allocated, is
// large and there is too much garbage. Take and Wait call it.
func (a *Account) Collect(bytes int64) {
	if bytes > SmallBytes && a.littered() {
		a.garbage.collect(a.littered)
	}
}

// Sweep has the garbage collector find what was dropped without being given back, unless Sweep did so
// within the given time.
func (a *Account) Sweep(within time.Duration) { a.garbage.sweep(within) }

func (a *Account) littered() bool {
	garbage := a.garbage.bytes.Load()
	return garbage > 0 && a.used.Load()+garbage > a.limit+max(a.limit/garbageShare, leastGarbage)
}

// Give gives bytes back whose memory is left to the garbage collector.
func (a *Account) Give(bytes int64) {
	if bytes > SmallBytes {
		a.garbage.add(bytes)
	}
	a.Cancel(bytes)
}

// Cancel gives bytes back that were not allocated, or that another caller has taken.
func (a *Account) Cancel(bytes int64) {
	if bytes == 0 {
		return
	}
	a.used.Add(-bytes)
	if a.waiting.Load() > 0 {
		a.wake()
	}
}

// wake serves waiters in order, as far as there is room.
func (a *Account) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) > 0 && a.take(a.queue[0].bytes, a.queue[0].held) {
		close(a.queue[0].ready)
		a.queue = a.queue[1:]
		a.waiting.Add(-1)
	}
}

// Wait takes bytes for a request that already holds held. If there is no room it waits, in
// the order of the calls. After Patience it returns a *kv.OverloadError; if ctx ends first,
// the error of ctx.
func (a *Account) Wait(ctx context.Context, bytes, held int64) error {
	if (a.waiting.Load() == 0 || bytes <= SmallBytes) && a.take(bytes, held) {
		a.Collect(bytes)
		return nil
	}
	w := &waiter{bytes, held, make(chan struct{})}
	a.mu.Lock()
	a.queue = append(a.queue, w)
	a.waiting.Add(1)
	a.mu.Unlock()
	a.wake() // bytes may have been given back before w was in the queue
	t := time.NewTimer(Patience)
	defer t.Stop()
	var err error
	select {
	case <-w.ready:
		a.Collect(bytes)
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		a.Sweep(Patience)
		err = Refusal()
	}
	if !a.leave(w) {
		a.Collect(bytes)
		return nil // w was served at the same time
	}
	a.refused.Add(1)
	a.wake() // a smaller request after w may fit
	return err
}

// leave removes a waiter from the queue, unless it was served.
func (a *Account) leave(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range a.queue {
		if other == w {
			a.queue = append(a.queue[:i:i], a.queue[i+1:]...)
			a.waiting.Add(-1)
			return true
		}
	}
	return false
}

// Refusal is the error of a request for which there are not enough bytes.
func Refusal() error { return &kv.OverloadError{Reason: "bytes", RetryAfter: RetryAfter} }

// RetryAfter is when a refused caller should retry. Guessed: long compared to a call, short
// compared to a deadline.
const RetryAfter = 50 * time.Millisecond
