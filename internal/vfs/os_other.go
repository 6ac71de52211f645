//go:build unix && !linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncOS is fsync, on darwin with F_FULLFSYNC (os.File.Sync does that).
func syncOS(f *os.File) error { return f.Sync() }

func reserveOS(*os.File, int64, int64) error { return errors.ErrUnsupported }

func startWriteback(*os.File, int64, int64) {}

func blockUnit(s *unix.Statfs_t) uint64 { return uint64(s.Bsize) }
