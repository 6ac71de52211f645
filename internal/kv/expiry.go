package kv

import (
	"fmt"
	"math"
	"time"
)

// MaxTTL is the longest time to live. A longer one means for ever, or is a number in the
// wrong unit.
const MaxTTL = 100 * 365 * 24 * time.Hour

// ExpiryAt returns when a value ends that lives from now, by the store's clock, for some
// milliseconds. More than MaxTTL are ErrInvalidArgument.
func ExpiryAt(now, ttlMillis uint64) (expiry uint64, err error) {
	if limit := uint64(MaxTTL.Milliseconds()); ttlMillis > limit {
		return 0, fmt.Errorf("%w: time to live is %d ms, limit is %d (100 years); leave it out for ever", ErrInvalidArgument, ttlMillis, limit)
	}
	return now + min(ttlMillis, math.MaxUint64-now), nil
}

// TimeLeftAt returns the milliseconds from now until an expiry. It never returns 0, which
// means for ever: an item that has expired since it was read has one millisecond left.
func TimeLeftAt(now, expiry uint64) uint64 {
	if now >= expiry {
		return 1
	}
	return expiry - now
}
