package service

import (
	"math"
	"time"
)

// maxTTL is the longest time to live. A longer one means for ever, or is a number in the
// wrong unit.
const maxTTL = 100 * 365 * 24 * time.Hour

// expiryOf returns when a value with a time to live ends, by the store's clock.
func (s *Server) expiryOf(ttlMillis uint64) (uint64, error) {
	if ttlMillis == 0 {
		return 0, nil // for ever
	}
	return expiryAt(s.store.Now(), ttlMillis)
}

func expiryAt(now, ttlMillis uint64) (uint64, error) {
	if limit := uint64(maxTTL.Milliseconds()); ttlMillis > limit {
		return 0, Invalidf("time to live is %d ms, limit is %d (100 years); leave it out for ever", ttlMillis, limit)
	}
	return now + min(ttlMillis, math.MaxUint64-now), nil
}

// TimeLeft returns the time to live, in milliseconds, of what a read found.
func (s *Server) TimeLeft(expiry uint64) uint64 {
	if expiry == 0 {
		return 0
	}
	return timeLeftAt(s.store.Now(), expiry)
}

// timeLeftAt never returns 0, which means for ever: an item that has expired since it was
// read has one millisecond left.
func timeLeftAt(now, expiry uint64) uint64 {
	if now >= expiry {
		return 1
	}
	return expiry - now
}
