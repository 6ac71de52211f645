package wal

import (
	"errors"
	"os"

	"github.com/kvd-db/kvd/internal/vfs"
)

// CheckPlace reports whether the active segment is still the file of its name: else
// what is written to it would not be found again.
//
// Errors: those of vfs.CheckPlace.
func (l *Log) CheckPlace() error {
	l.mu.Lock()
	active := l.mu.active
	l.mu.Unlock()
	if active == nil {
		return nil // suspended: nothing is written
	}
	opened, err := active.file.Stat()
	if errors.Is(err, os.ErrClosed) {
		return nil // by a rotation meanwhile, or the end
	}
	if err != nil {
		return err
	}
	return vfs.CheckPlace(l.opts.FS, active.name, opened)
}
