package vfs

import (
	"fmt"
	"path/filepath"
)

// lockedBy is the error of a lock that a process holds.
func lockedBy(name, pid string) error {
	return fmt.Errorf("lock %s: %w (pid %s)", filepath.Clean(name), ErrLocked, pid)
}
