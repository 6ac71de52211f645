package loadgen

import "time"

// Clock measures nanoseconds since its epoch.
type Clock struct{ epoch time.Time }

// NewClock returns a Clock that begins one nanosecond in the past, because time 0 stands
// for "never".
func NewClock() Clock { return Clock{time.Now().Add(-time.Nanosecond)} }

// at returns the nanoseconds from the epoch to t.
func (c Clock) at(t time.Time) int64 { return int64(t.Sub(c.epoch)) }

// Now returns the nanoseconds since the epoch. It is monotonic across processors, which
// callers may rely on.
func (c Clock) Now() int64 { return int64(time.Since(c.epoch)) }
