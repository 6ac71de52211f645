package sstable

import (
	"sync/atomic"
	"unsafe"
)

// counts are the hits and misses of a cache, in cells: many goroutines count at once,
// and if they did it in one place, each would wait for the processor that did it
// last.
type counts [1 << countBits]countCell

const countBits = 4

type countCell struct {
	hits, misses atomic.Uint64
	_            [112]byte // no other cell in this cache line or its neighbour
}

// mine returns the cell of the goroutine that calls, which it may share with others. It
// is found by where the goroutine's stack is.
func (c *counts) mine() *countCell {
	var here byte
	const golden = 0x9e3779b97f4a7c15 // spreads what differs between stacks
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	return &c[stack*golden>>(64-countBits)]
}

func (c *counts) sum() (hits, misses uint64) {
	for i := range c {
		hits += c[i].hits.Load()
		misses += c[i].misses.Load()
	}
	return hits, misses
}
