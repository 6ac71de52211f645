// Package memory counts the bytes that requests hold, and refuses more than there is
// room for.
//
// A server has one [Account]. Whatever a request brings into memory is taken from it
// before it is allocated, and given back when the memory is free again: the bytes of
// the request, values that were read, batches of scans, and answers until the transport
// has written them. Memtables and caches have bounds of their own.
//
// # Who gets how much
//
// Pieces of more than [SmallBytes] have three quarters of the account; the rest is for
// small ones, so that small requests are served while large ones fill their part.
//
// A request that needs more than there can be is served alone: it is given what it asks
// for if all others together hold a quarter of the account at most. So every request
// within the server's limits can be served, and the account holds at most its limit, or
// a quarter of it and one largest request.
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
	// smallShare of the account, a quarter, is for small pieces alone.
	smallShare = 4
	// aloneShare of the account, a quarter, is what others may hold at most when a
	// request is served that exceeds its bound.
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

	waiting atomic.Int32 // length of queue
	mu      sync.Mutex
	queue   []*waiter // the first is served first
}

// waiter waits for bytes. ready is closed when it has them.
type waiter struct {
	bytes, held int64
	ready       chan struct{}
}

// New returns an account of so many bytes.
func New(limit int64) *Account { return &Account{limit: limit} }

// Limit returns the size of the account.
func (a *Account) Limit() int64 { return a.limit }

// Used returns how many bytes are taken.
func (a *Account) Used() int64 { return a.used.Load() }

// Refused returns how often bytes were refused.
func (a *Account) Refused() uint64 { return a.refused.Load() }

// Take takes bytes for a request that holds others already, or reports that there is
// no room. It never waits.
func (a *Account) Take(bytes, held int64) bool {
	// While others wait, only small pieces go past them.
	if (a.waiting.Load() == 0 || bytes <= SmallBytes) && a.take(bytes, held) {
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

// fits reports whether bytes may be added to what is used, by a request that holds
// some of that.
func (a *Account) fits(used, bytes, held int64) bool {
	bound := a.limit
	if bytes > SmallBytes {
		bound -= a.limit / smallShare
	}
	return used+bytes <= bound || used-held <= a.limit/aloneShare && held+bytes > bound-a.limit/aloneShare
}

// Add takes bytes that are in memory already.
func (a *Account) Add(bytes int64) { a.used.Add(bytes) }

// Give gives bytes back.
func (a *Account) Give(bytes int64) {
	if bytes == 0 {
		return
	}
	a.used.Add(-bytes)
	if a.waiting.Load() > 0 {
		a.wake()
	}
}

// wake serves those that wait, in their order, as far as there is room.
func (a *Account) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) > 0 && a.take(a.queue[0].bytes, a.queue[0].held) {
		close(a.queue[0].ready)
		a.queue = a.queue[1:]
		a.waiting.Add(-1)
	}
}

// Wait takes bytes for a request that holds others already, and waits for them if there
// is no room, in the order of the callers. After Patience it gives up with a
// *kv.OverloadError, and when ctx ends with its error.
func (a *Account) Wait(ctx context.Context, bytes, held int64) error {
	if (a.waiting.Load() == 0 || bytes <= SmallBytes) && a.take(bytes, held) {
		return nil
	}
	w := &waiter{bytes, held, make(chan struct{})}
	a.mu.Lock()
	a.queue = append(a.queue, w)
	a.waiting.Add(1)
	a.mu.Unlock()
	a.wake() // what was given back before it stood in the queue
	t := time.NewTimer(Patience)
	defer t.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		err = Refusal()
	}
	if !a.leave(w) {
		return nil // it was served in the same moment
	}
	a.refused.Add(1)
	a.wake() // a smaller one may have waited after it
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

// RetryAfter is the advice to a caller that was refused. Guessed: long against a call,
// short against a deadline.
const RetryAfter = 50 * time.Millisecond
