package sstable

import (
	"sync/atomic"
	"unsafe"
)

// counts are the hits and misses of a cache, in cells: many goroutines count at once,
// and a single counter would move its cache line between processors on every count.
type counts [1 << countBits]countCell

const countBits = 4

type countCell struct {
	hits, misses atomic.Uint64
	_            [112]byte // no other cell in this cache line or its neighbour
}

// mine returns a cell for the calling goroutine, chosen by the address of its stack.
// Goroutines may share a cell.
func (c *counts) mine() *countCell {
	var here byte
	const golden = 0x9e3779b97f4a7c15                     // spreads the bits in which stacks differ
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // #nosec G103 -- only a number to spread counts by
	return &c[stack*golden>>(64-countBits)]
}

func (c *counts) sum() (hits, misses uint64) {
	for i := range c {
		hits += c[i].hits.Load()
		misses += c[i].misses.Load()
	}
	return hits, misses
}
