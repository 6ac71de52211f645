package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

var errOpenedToRead = fmt.Errorf("%w: the store was opened to be read alone", kv.ErrReadOnly)

// checkAccess refuses a data directory of another user, where this process would leave
// files that its owner cannot open, and one that other users may write to: they could
// replace what is in it.
func checkAccess(fsys vfs.FS, dir string) error {
	info, err := fsys.Stat(dir + "/.") // of a symbolic link, where it leads
	if err != nil {
		return err
	}
	if owner, ok := vfs.Owner(info); ok && owner != os.Geteuid() {
		return fmt.Errorf("%w: the data directory %s belongs to user %d and this process is user %d: run it as its owner, or give it the directory (chown)",
			kv.ErrInvalidArgument, dir, owner, os.Geteuid())
	}
	if others := info.Mode().Perm() & 0o022; others != 0 {
		return fmt.Errorf("%w: other users may write to the data directory %s (mode %#o): take that from them (chmod go-w)",
			kv.ErrInvalidArgument, dir, info.Mode().Perm())
	}
	return nil
}

// checkDirs refuses a store whose parts are symbolic links, which may lead to the files
// of another store, and one with more partitions than STORE says.
func (e *Engine) checkDirs() error {
	n := e.descriptor.Partitions
	names, err := e.opts.FS.List(e.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := descriptor.ParsePartition(name); ok && id >= n {
			return descriptor.ErrTooFew(e.dir, n, id)
		}
	}
	dirs := []string{descriptor.LogDir(e.dir)}
	for id := range n {
		dirs = append(dirs, descriptor.PartitionDir(e.dir, id))
	}
	for _, dir := range dirs {
		info, err := e.opts.FS.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // its reader says so
		case err != nil:
			return err
		case info.Mode()&os.ModeSymlink != 0:
			return fmt.Errorf("%w: %s is a symbolic link: move what it leads to here, or link to the whole data directory",
				kv.ErrInvalidArgument, dir)
		}
	}
	return nil
}
