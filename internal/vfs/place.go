package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrMisplaced: a file or directory is not where it was opened.
var ErrMisplaced = errors.New("is not where the store opened it: it was removed, renamed or replaced")

// CheckPlace reports whether what has a name is what was opened by it, as FS.Stat or
// File.Stat described it.
//
// Errors: ErrMisplaced; any other is of the file system, and does not tell.
func CheckPlace(fsys FS, name string, opened os.FileInfo) error {
	info, err := fsys.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
	case err != nil:
		return err
	case SameFile(info, opened):
		return nil
	}
	return fmt.Errorf("%s %w", name, ErrMisplaced)
}
