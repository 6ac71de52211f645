package engine

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

// bootClock tells the time since the machine was booted, which advances while no
// process runs. id identifies the boot; the zero id means that there is no such clock.
type bootClock struct {
	id  [16]byte
	now func() time.Duration // nil without an id
}

// bootIDPath is the file in which Linux publishes a random id of the boot.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// systemBoot returns the machine's boot clock if fsys is the machine's file system. A
// store in memory has none: it does not outlive the process.
func systemBoot(fsys vfs.FS) (bootClock, error) {
	f, err := fsys.Open(bootIDPath)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return bootClock{}, nil
	}
	if err != nil {
		return bootClock{}, err
	}
	text := make([]byte, 64)
	n, err := f.ReadAt(text, 0)
	if err = errors.Join(notEOF(err), f.Close()); err != nil {
		return bootClock{}, fmt.Errorf("read %s: %w", bootIDPath, err)
	}
	var c bootClock
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text[:n])), "-", ""))
	if err != nil || len(id) != len(c.id) {
		return bootClock{}, nil // not what Linux has there
	}
	if _, err := vfs.SinceBoot(); err != nil {
		return bootClock{}, nil // an old kernel
	}
	copy(c.id[:], id)
	c.now = func() time.Duration {
		d, err := vfs.SinceBoot()
		if err != nil {
			panic(fmt.Sprintf("the boot clock, which was there at the start, fails: %v", err))
		}
		return d
	}
	return c, nil
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
