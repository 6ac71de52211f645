package sstable

import (
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/stripe"
)

// counts are the hits and misses of a cache, striped: many goroutines count at once.
type counts [1 << countBits]countStripe

const countBits = 4

type countStripe struct {
	hits, misses atomic.Uint64
	_            [stripe.Bytes - 16]byte
}

// mine returns the stripe of the calling goroutine.
func (c *counts) mine() *countStripe { return &c[stripe.Index(countBits)] }

func (c *counts) sum() (hits, misses uint64) {
	for i := range c {
		hits += c[i].hits.Load()
		misses += c[i].misses.Load()
	}
	return hits, misses
}
