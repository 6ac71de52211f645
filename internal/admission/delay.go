package admission

import "time"

const (
	// target is how long the eldest may wait while the queue stands, and interval how
	// long it has to be above that to be called standing; it is also how long anybody
	// waits at most. 5 and 100 ms are CoDel's (RFC 8289, section 3.2, found for
	// packets) and those that servers took over (Maurer, 2015): above the time of a
	// common call here, below what a caller feels.
	target   = 5 * time.Millisecond
	interval = 100 * time.Millisecond
)

// delay tells a queue that stands from one that takes up a burst.
type delay struct {
	// above is since when the eldest has always been above the target; zero: it is
	// not. Once the queue stands, it does until it is empty.
	above  time.Time
	stands bool
}

// limit notes how long the eldest has waited, and returns how long one may have.
// To be called whenever there is room.
func (d *delay) limit(now time.Time, eldest time.Duration) time.Duration {
	switch {
	case d.stands:
	case eldest <= target:
		d.above = time.Time{}
	case d.above.IsZero():
		d.above = now
	default:
		d.stands = now.Sub(d.above) >= interval
	}
	if d.stands {
		return target
	}
	return interval
}

// standing is how long the queue has been above the target.
func (d *delay) standing(now time.Time) time.Duration {
	if d.above.IsZero() {
		return 0
	}
	return now.Sub(d.above)
}
