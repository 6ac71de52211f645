//go:build unix

package daemon

import "golang.org/x/sys/unix"

// openFileLimit returns how many files the process may have open. Go's runtime raises the
// soft limit to the hard limit at its start.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return commonFileLimit
	}
	return uint64(limit.Cur)
}
