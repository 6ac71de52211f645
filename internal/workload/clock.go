package workload

import "time"

// clock measures nanoseconds since its epoch.
type clock struct{ epoch time.Time }

// newClock starts one nanosecond in the past, because time 0 stands for "never".
func newClock() clock { return clock{time.Now().Add(-time.Nanosecond)} }

// now returns the nanoseconds since the epoch. It is monotonic across processors, which
// [deletions] relies on.
func (c clock) now() int64 { return int64(time.Since(c.epoch)) }
