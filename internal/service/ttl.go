package service

import "github.com/kvd-db/kvd/internal/kv"

// expiryOf returns when a value with a time to live ends, by the store's clock.
func (s *Server) expiryOf(ttlMillis uint64) (uint64, error) {
	if ttlMillis == 0 {
		return 0, nil // for ever
	}
	expiry, err := kv.ExpiryAt(s.store.Now(), ttlMillis)
	if err != nil {
		return 0, Invalid(err)
	}
	return expiry, nil
}

// TimeLeft returns the time to live, in milliseconds, of what a read found.
func (s *Server) TimeLeft(expiry uint64) uint64 {
	if expiry == 0 {
		return 0
	}
	return kv.TimeLeftAt(s.store.Now(), expiry)
}
