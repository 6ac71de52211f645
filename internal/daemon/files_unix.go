//go:build unix

package daemon

import "golang.org/x/sys/unix"

// openFileLimit is how many files the process may have open. Go's runtime has raised the
// soft limit to the hard one when it started.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return commonFileLimit
	}
	return uint64(limit.Cur)
}
