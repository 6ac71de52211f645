//go:build unix && !linux

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncOS is fsync, on darwin with F_FULLFSYNC (os.File.Sync does that).
func syncOS(f *os.File) error { return f.Sync() }

func startWriteback(*os.File, int64, int64) {}

func blockUnit(s *unix.Statfs_t) uint64 { return uint64(s.Bsize) }
