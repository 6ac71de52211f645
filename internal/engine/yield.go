package engine

import (
	"math/rand/v2"
	"runtime"
)

// yieldEvery is the mean number of keys read between two yields of the processor.
//
// A read from memory never blocks, so readers keep their processors until the runtime
// preempts them after 10 ms. A write switches goroutines some five times, and with more
// readers than processors each switch waits for a reader: a transaction took 58 to 157 ms
// without yields, 1 to 2 ms with one for every 16 keys (see bench/NOTES.md).
const yieldEvery = 16

// yield yields the processor now and then, after reads that were answered without
// blocking. It chooses at random, so that processors share no counter.
func yield(keys int) {
	if rand.Uint32()%yieldEvery < uint32(keys) {
		runtime.Gosched()
	}
}
