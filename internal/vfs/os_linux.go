package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncOS is fdatasync: half the writes of fsync on a file that does not change
// its length, and it does wait for a changed length. EINTR means that the wait
// was cut short, not that the sync failed, so it alone is tried again.
func syncOS(f *os.File) error {
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		if ctlErr := control(f, func(fd int) { err = unix.Fdatasync(fd) }); ctlErr != nil {
			return ctlErr
		}
	}
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// reserveOS is fallocate(2), which is cheap: it notes extents without writing them.
func reserveOS(f *os.File, offset, length int64) error {
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		if ctlErr := control(f, func(fd int) { err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, offset, length) }); ctlErr != nil {
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: os.ErrClosed}
		}
	}
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// startWriteback uses SYNC_FILE_RANGE_WRITE alone: the waiting flags would
// report, and so use up, a write-back error that the next Sync has to see.
func startWriteback(f *os.File, offset, length int64) {
	_ = control(f, func(fd int) { _ = unix.SyncFileRange(fd, offset, length, unix.SYNC_FILE_RANGE_WRITE) })
}

// blockUnit is the unit of the block counts: the fragment size, which differs
// from the block size on FUSE.
func blockUnit(s *unix.Statfs_t) uint64 { return uint64(s.Frsize) }
