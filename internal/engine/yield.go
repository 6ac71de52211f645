package engine

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/stripe"
)

// A read from memory never blocks, so readers keep their processors until the runtime
// preempts them after 10 ms. A write switches goroutines some five times, and with more
// readers than processors each switch waits for a reader: a transaction took 58 to 157 ms
// without yields, 1 to 2 ms with one for every 16 keys. So readers yield while a call that
// may wait is in progress. While there is none, a yield would wake a thread if a processor is
// idle: a Get of one reader then took 1.3 times as long. See bench/NOTES.md.
//
// Both numbers are the mean number of keys read between two yields, and powers of two.
const (
	yieldEvery = 16
	// seldomYieldEvery bounds how long a reader keeps its processor from other readers.
	seldomYieldEvery = 512
)

// waiters counts the calls in progress that may wait for other goroutines or for the disk:
// writes, reads that memory does not answer, reads at a version, new snapshots and batches of
// scans.
type waiters struct {
	_ [stripe.Bytes]byte // readers have what is beside it in their caches
	n atomic.Int64
	_ [stripe.Bytes]byte
}

func (w *waiters) begin() { w.n.Add(1) }

func (w *waiters) end() { w.n.Add(-1) }

// yield yields the processor now and then, after reads that were answered without
// blocking. It chooses at random, so that processors share no counter.
func (e *Engine) yield(keys int) {
	every := uint32(seldomYieldEvery)
	if e.hasWaiters() {
		every = yieldEvery
		e.company.MeetReader()
	}
	if rand.Uint32()%every < uint32(keys) {
		runtime.Gosched()
	}
}

// hasWaiters reports whether another goroutine may need the processor of a reader soon. The loop
// of a member of a cluster always may.
func (e *Engine) hasWaiters() bool { return e.member != nil || e.waiters.n.Load() > 0 }
