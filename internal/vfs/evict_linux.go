package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Evict drops the pages of a file of OS from the page cache, so that the next reads ask the
// disk. Pages that have not been written to the disk yet stay, and the file systems without
// a disk keep all. A benchmark calls it; no answer depends on it.
func Evict(name string) error {
	f, err := openFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if ctlErr := control(f, func(fd int) { err = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) }); ctlErr != nil {
		err = ctlErr
	}
	if err != nil {
		err = &os.PathError{Op: "fadvise", Path: name, Err: err}
	}
	return errors.Join(err, f.Close())
}
