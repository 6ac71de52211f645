package kv

// TableStats says of an sstable what matters to those who decide whether to merge it.
// It stands in the file; the manifest does not have it.
type TableStats struct {
	// Shadowed is the count of puts and deletes that have a newer one of the same key in
	// the same table.
	Shadowed uint64
	// Expiring is the count of puts that expire.
	Expiring uint64
	// Expiries says when they do, in Unix milliseconds, ascending: at most MaxExpiries
	// times, the first and the last exact, which part them into about equal shares.
	// Immutable.
	Expiries []uint64
}

// MaxExpiries bounds TableStats.Expiries.
const MaxExpiries = 9

// None reports whether there is nothing to say.
func (s *TableStats) None() bool { return s.Shadowed == 0 && s.Expiring == 0 }

// Expired estimates how many puts have expired by now. It is exact if none has or all
// have.
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
	return min(estimate, s.Expiring-1) // the last has not, whatever the rounding says
}
