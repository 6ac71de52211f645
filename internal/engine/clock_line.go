package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
)

// line defines in advance what the clock will say, as a function of the monotonic time. It
// begins at start and approaches the wall clock, which is assumed to advance steadily from
// wall, at half to twice the speed of time, and ends at bound. From a durable line
// recovery knows how far the clock can have been before a crash.
type line struct {
	since time.Duration // of the monotonic clock
	start time.Time
	wall  time.Time
	bound time.Time
}

// free returns what the line says at a time, ignoring its bound.
func (l *line) free(at time.Duration) time.Time {
	passed := max(at-l.since, 0)
	return follow(l.wallAt(at), l.start.Add(passed/2), l.start.Add(2*passed))
}

// at returns what the line says at a time.
func (l *line) at(at time.Duration) time.Time {
	if t := l.free(at); t.Before(l.bound) {
		return t
	}
	return l.bound
}

// wallAt returns what the line assumes the wall clock to say at a time.
func (l *line) wallAt(at time.Duration) time.Time { return l.wall.Add(max(at-l.since, 0)) }

// follow returns the time from least to most that is nearest to wall.
func follow(wall, least, most time.Time) time.Time {
	switch {
	case wall.Before(least):
		return least
	case wall.After(most):
		return most
	}
	return wall
}

// newLine returns a line that begins at start, rounded up to the units of the file CLOCK.
func newLine(since time.Duration, start, wall time.Time) line {
	l := line{since: since, start: roundUp(start, time.Microsecond), wall: roundUp(wall, time.Microsecond)}
	l.bound = roundUp(l.start.Add(clockAhead), time.Millisecond)
	return l
}

// roundUp rounds t up to a multiple of unit, and to 1970 at least.
func roundUp(t time.Time, unit time.Duration) time.Time {
	if t.Before(time.UnixMilli(0)) {
		return time.UnixMilli(0)
	}
	down := t.Truncate(unit)
	if down.Before(t) {
		return down.Add(unit)
	}
	return down
}

// save returns the line as it is stored in the file CLOCK. If there is a boot clock, at is
// its time at, or shortly before, the monotonic time l.since.
func (l *line) save(storeID uint64, boot bootClock, at time.Duration) descriptor.Clock {
	c := descriptor.Clock{StoreID: storeID, Bound: max(unixMilli(l.bound), 1)}
	if boot.now != nil {
		c.Boot, c.Since = boot.id, uint64(at)
		c.Time, c.Wall = uint64(l.start.UnixMicro()), uint64(l.wall.UnixMicro())
	}
	return c
}

// resume returns what the clock would say now if the process had not ended. It reports
// false if the line was saved in another boot.
func resume(c *descriptor.Clock, boot bootClock) (now time.Time, ok bool) {
	if boot.now == nil || c.Boot != boot.id {
		return time.Time{}, false
	}
	at := boot.now()
	if at < time.Duration(c.Since) {
		return time.Time{}, false // a virtual machine was reset to an earlier state
	}
	l := savedLine(c)
	return l.free(at), true
}

// savedLine returns the line stored in the file CLOCK; its since is a boot time.
func savedLine(c *descriptor.Clock) line {
	return line{
		since: time.Duration(c.Since), start: time.UnixMicro(int64(c.Time)), wall: time.UnixMicro(int64(c.Wall)),
		bound: time.UnixMilli(int64(c.Bound)),
	}
}
