// Package disk knows the file system that a comparison writes to.
package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sync waits until all that was written to the file system of a directory is on its
// disk, so that nobody pays for what another one wrote.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// Free is what may still be written to the file system of a directory.
func Free(dir string) (bytes int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// leastFreeBytes is how much room a run leaves on the disk: enough for the other
// users of a machine, and for the seconds that pass before it ends.
const leastFreeBytes = 6 << 30

// Enough reports whether there is room for so many bytes, and what is to be left.
func Enough(dir string, bytes int64) error {
	free, err := Free(dir)
	if want := bytes + leastFreeBytes; err == nil && free < want {
		err = fmt.Errorf("%d MiB free on the disk of %s, want at least %d", free>>20, dir, want>>20)
	}
	return err
}
