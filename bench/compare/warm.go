package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// readFiles reads all files below a directory into the page cache. A store may have
// dropped what it has just written from the page cache, as kvd does with the outputs of
// compactions. The first second of reads would then measure the disk for that engine
// only.
func readFiles(dir string) error {
	return eachFile(dir, func(f *os.File) error {
		_, err := io.Copy(io.Discard, f)
		return err
	})
}

// forgetFiles drops all files below a directory from the page cache, so that the next
// reads come from the disk. The files must be synced.
func forgetFiles(dir string) error {
	return eachFile(dir, func(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) })
}

// eachFile opens each file below a directory. A store may remove files meanwhile.
func eachFile(dir string, use func(*os.File) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(use(f), f.Close())
	})
}
