package admission

import "time"

const (
	// target is how long the oldest work may wait while the queue stands. interval is how
	// long that wait must exceed the target until the queue counts as standing, and the
	// longest wait in any case. 5 and 100 ms are the values of CoDel (RFC 8289, section
	// 3.2, found for packets), which servers use too (Maurer, 2015): longer than a common
	// call here, shorter than what a caller notices.
	target   = 5 * time.Millisecond
	interval = 100 * time.Millisecond
)

// delay distinguishes a standing queue from one that absorbs a burst.
type delay struct {
	// above is when the wait of the oldest work rose above the target, where it has been
	// since; zero: it is not above. A standing queue stands until it is empty.
	above  time.Time
	stands bool

	// begun and seen are when that wait was first and last above the target, with pauses
	// of at most maxRetryAfter, for which refused clients stay away.
	begun, seen time.Time
}

// limit records how long the oldest work has waited and returns how long work may wait.
// The caller calls it whenever there is room.
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

// emptied records that the queue is empty.
func (d *delay) emptied() { d.above, d.stands = time.Time{}, false }

// overload returns for how long the queue has been too long, with pauses.
func (d *delay) overload(now time.Time) time.Duration {
	if now.Sub(d.seen) > maxRetryAfter {
		return 0
	}
	return now.Sub(d.begun)
}
