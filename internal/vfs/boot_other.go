//go:build !linux

package vfs

import (
	"errors"
	"time"
)

// SinceBoot returns how long the machine has been up, with the time that it slept.
func SinceBoot() (time.Duration, error) { return 0, errors.ErrUnsupported }
