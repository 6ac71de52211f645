//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// Owner returns the user id of the owner of a file, and whether the file system has one.
func Owner(info os.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
