package vfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns how long the machine has been up, with the time that it slept.
func SinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
