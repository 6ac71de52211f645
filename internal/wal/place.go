package wal

import (
	"errors"
	"os"

	"github.com/kvd-db/kvd/internal/vfs"
)

// CheckPlace returns an error unless the name of the active segment still refers to the
// open file: otherwise recovery would not find what is written to it.
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
		return nil // by a rotation meanwhile, or by Close
	}
	if err != nil {
		return err
	}
	return vfs.CheckPlace(l.opts.FS, active.name, opened)
}
