package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	stepBits = 7  // 128 steps per power of two: at most 0.8 % wide
	rangeBit = 42 // values of 2^42 and above share the last bucket
	steps    = 1 << stepBits

	groupCount  = rangeBit - stepBits + 1 // the buckets of one power of two; the first group has those below
	bucketCount = groupCount * steps
)

// Histogram counts durations. The zero value is ready.
//
// Safe for concurrent use by any number of recorders and readers. For speed
// give each recorder its own and add up snapshots. Must not be copied.
type Histogram struct {
	counts  [bucketCount]atomic.Uint64
	groups  atomic.Uint64 // bit i: group i may hold something; the others do not
	largest atomic.Int64
}

// Record counts one duration; a negative one counts as zero.
func (h *Histogram) Record(d time.Duration) {
	if d < 0 {
		d = 0
	}
	bucket := bucketOf(uint64(d))
	if bit := uint64(1) << (bucket / steps); h.groups.Load()&bit == 0 {
		h.groups.Or(bit)
	}
	h.counts[bucket].Add(1)
	for {
		largest := h.largest.Load()
		if int64(d) <= largest || h.largest.CompareAndSwap(largest, int64(d)) {
			return
		}
	}
}

// bucketOf returns the bucket of a value. Within one power of two the index
// grows by one per step; the shift alone decides how wide a step is.
func bucketOf(v uint64) int {
	if v < steps {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - stepBits
	if shift >= rangeBit-stepBits {
		return bucketCount - 1
	}
	return shift*steps + int(v>>shift)
}

// bucketBounds returns the smallest and the largest value of a bucket. The last
// bucket has no upper bound; bucketBounds returns that of its step.
func bucketBounds(i int) (low, high uint64) {
	if i < 2*steps {
		return uint64(i), uint64(i)
	}
	shift := i/steps - 1
	low = uint64(i-shift*steps) << shift
	return low, low + 1<<shift - 1
}
