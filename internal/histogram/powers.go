package histogram

import (
	"math/bits"
	"sync/atomic"
)

// PowerBuckets is how many buckets Powers has.
const PowerBuckets = 32

// Powers counts numbers by powers of two: bucket i counts those of at most 2^i that no
// lower bucket counts, the last bucket everything above. It is for counters that always
// run and are read as a whole: sizes, or durations in some unit. The zero value is ready.
//
// Safe for concurrent use. Must not be copied.
// Cost: two atomic additions for each number.
type Powers struct {
	counts [PowerBuckets]atomic.Uint64
	sum    atomic.Uint64
}

// Record counts one number.
func (p *Powers) Record(n uint64) {
	p.counts[powerBucket(n)].Add(1)
	p.sum.Add(n)
}

// powerBucket returns the least i with n <= 2^i, or the last bucket.
func powerBucket(n uint64) int {
	if n <= 1 {
		return 0
	}
	return min(bits.Len64(n-1), PowerBuckets-1)
}

// Counts returns the counts so far. A concurrent Record may be in the buckets but not
// in the sum.
func (p *Powers) Counts() PowerCounts {
	c := PowerCounts{Sum: p.sum.Load()}
	for i := range p.counts {
		c.Buckets[i] = p.counts[i].Load()
	}
	return c
}

// PowerCounts is the counts of a Powers, with the same buckets.
type PowerCounts struct {
	Buckets [PowerBuckets]uint64
	Sum     uint64 // of all numbers
}

// Record counts one number, like Powers, but for one goroutine at a time.
func (c *PowerCounts) Record(n uint64) {
	c.Buckets[powerBucket(n)]++
	c.Sum += n
}

// Count returns how many numbers there were.
func (c PowerCounts) Count() uint64 {
	n := uint64(0)
	for _, b := range c.Buckets {
		n += b
	}
	return n
}

// Add adds the counts of other.
func (c *PowerCounts) Add(other *PowerCounts) {
	for i, n := range other.Buckets {
		c.Buckets[i] += n
	}
	c.Sum += other.Sum
}
