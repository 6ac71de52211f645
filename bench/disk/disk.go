// Package disk inspects the file system that a comparison writes to.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sync waits until everything written to the file system of a directory is on its disk,
// so that no contestant pays for the writes of another.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// Free returns how many bytes may still be written to the file system of a directory.
func Free(dir string) (bytes int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space on the disk of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// leastFreeBytes is the space that a run leaves on the disk: more than it writes between
// two looks at the free space, so that it ends before the disk is full.
const leastFreeBytes = 1 << 30

// Enough returns an error unless the disk has room for this many bytes and
// leastFreeBytes.
func Enough(dir string, bytes int64) error {
	free, err := Free(dir)
	if want := bytes + leastFreeBytes; err == nil && free < want {
		err = fmt.Errorf("%d MiB free on the disk of %s, want at least %d", free>>20, dir, want>>20)
	}
	return err
}

// Used returns the disk space of the files below a directory. Files may be created
// and removed meanwhile.
func Used(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			total += stat.Blocks * 512
		}
		return nil
	})
	return total, err
}
