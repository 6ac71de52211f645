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

	// begun and seen are when the eldest was first and last above the target, with
	// pauses of at most maxRetryAfter: those are of clients who were told to wait.
	begun, seen time.Time
}

// limit notes how long the eldest has waited, and returns how long one may have.
// To be called whenever there is room.
func (d *delay) limit(now time.Time, eldest time.Duration) time.Duration {
	if eldest > target {
		if now.Sub(d.seen) > maxRetryAfter {
			d.begun = now
		}
		d.seen = now
	}
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

// emptied notes that the queue is empty.
func (d *delay) emptied() { d.above, d.stands = time.Time{}, false }

// overload is how long the queue has been too long, now and then.
func (d *delay) overload(now time.Time) time.Duration {
	if now.Sub(d.seen) > maxRetryAfter {
		return 0
	}
	return now.Sub(d.begun)
}
