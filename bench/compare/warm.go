package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// readFiles reads all files below a directory, so that they are in the page cache.
// A store may have dropped from it what it has just written, as kvd does with the
// outputs of compactions: the first second of reads would then measure the disk, and
// that of one engine alone.
func readFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		return errors.Join(err, f.Close())
	})
}
