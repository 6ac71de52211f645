package kv

// TableStats holds what the compaction picker needs to know about an sstable beyond its
// size. It is stored in the file; the manifest does not have it.
type TableStats struct {
	// Shadowed counts the puts and deletes that have a newer version of the same key in
	// the same table.
	Shadowed uint64
	// Expiring counts the puts that expire.
	Expiring uint64
	// Expiries are quantiles of their expiry times, in Unix milliseconds, ascending: at
	// most MaxExpiries times that divide the puts into shares of about equal size. The
	// first and the last are exact. Immutable.
	Expiries []uint64
}

// MaxExpiries bounds TableStats.Expiries.
const MaxExpiries = 9

// None reports whether all statistics are zero.
func (s *TableStats) None() bool { return s.Shadowed == 0 && s.Expiring == 0 }

// Expired estimates how many puts have expired by now. It is exact if none or all have.
func (s *TableStats) Expired(now uint64) uint64 {
	n := len(s.Expiries)
	switch {
	case n == 0 || now < s.Expiries[0]:
		return 0
	case now >= s.Expiries[n-1]:
		return s.Expiring
	}
	i := 0
	for s.Expiries[i+1] <= now {
		i++
	}
	within := float64(now-s.Expiries[i]) / float64(s.Expiries[i+1]-s.Expiries[i])
	estimate := uint64(float64(s.Expiring) * (float64(i) + within) / float64(n-1))
	return min(estimate, s.Expiring-1) // the last one has not expired, whatever the rounding
}
