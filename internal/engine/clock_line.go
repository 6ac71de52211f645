package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
)

// line says in advance what the clock will say, as a function of the time that passes:
// it goes on from start towards the wall clock, which it takes to go on from wall, at
// half to twice the speed of time, and as far as bound. Of a line that is durable it
// can be told, after a crash, how far the clock can have been.
type line struct {
	since time.Duration // of the monotonic clock
	start time.Time
	wall  time.Time
	bound time.Time
}

// free returns what the line says at a time, beyond its bound too.
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

// wallAt returns what the wall clock says if it goes on as the line takes it to.
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

// newLine returns a line from start on, in the units of the file CLOCK, and never less
// than start says.
func newLine(since time.Duration, start, wall time.Time) line {
	l := line{since: since, start: roundUp(start, time.Microsecond), wall: roundUp(wall, time.Microsecond)}
	l.bound = roundUp(l.start.Add(clockAhead), time.Millisecond)
	return l
}

// roundUp rounds up, and what is before 1970 to 1970.
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

// save returns the line as the file CLOCK has it; at is the time of the boot clock,
// if there is one, when that of the monotonic clock was l.since, or before.
func (l *line) save(storeID uint64, boot bootClock, at time.Duration) descriptor.Clock {
	c := descriptor.Clock{StoreID: storeID, Bound: max(unixMilli(l.bound), 1)}
	if boot.now != nil {
		c.Boot, c.Since = boot.id, uint64(at)
		c.Time, c.Wall = uint64(l.start.UnixMicro()), uint64(l.wall.UnixMicro())
	}
	return c
}

// resume returns what the clock would say now if it had not ended: of the boot that the
// line was saved in, of any other boot ok is false.
func resume(c *descriptor.Clock, boot bootClock) (now time.Time, ok bool) {
	if boot.now == nil || c.Boot != boot.id {
		return time.Time{}, false
	}
	at := boot.now()
	if at < time.Duration(c.Since) {
		return time.Time{}, false // a virtual machine that was set back
	}
	l := savedLine(c)
	return l.free(at), true
}

// savedLine returns the line of the file CLOCK; since is a time of the boot clock.
func savedLine(c *descriptor.Clock) line {
	return line{
		since: time.Duration(c.Since), start: time.UnixMicro(int64(c.Time)), wall: time.UnixMicro(int64(c.Wall)),
		bound: time.UnixMilli(int64(c.Bound)),
	}
}
