package vfs

import (
	"errors"
	"io/fs"
	"path"
)

// Parents returns the parents of a directory, the nearest first.
func Parents(dir string) (parents []string) {
	for d := path.Clean(dir); d != path.Dir(d); d = path.Dir(d) {
		parents = append(parents, path.Dir(d))
	}
	return parents
}

// SyncParents makes the names of a directory and of its parents durable, so that a power cut
// removes none of what MkdirAll has made. Which of them are new is not known after an attempt
// that was interrupted, so it syncs all that it has permission for: this process has made
// nothing in the others.
func SyncParents(fsys FS, dir string) error {
	for _, parent := range Parents(dir) {
		if err := fsys.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
