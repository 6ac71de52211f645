package workload

import "time"

// clock counts nanoseconds from its epoch.
type clock struct{ epoch time.Time }

// newClock starts a nanosecond back, because the time 0 stands for "never".
func newClock() clock { return clock{time.Now().Add(-time.Nanosecond)} }

// now returns the nanoseconds since the epoch. It is monotonic over all
// processors, on which [deletions] relies.
func (c clock) now() int64 { return int64(time.Since(c.epoch)) }
