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

var errOpenedToRead = fmt.Errorf("%w: the store was opened read-only", kv.ErrReadOnly)

// checkAccess refuses a data directory of another user, where this process would create
// files that the owner cannot open, and a directory that other users may write to, since
// they could replace its files.
func checkAccess(fsys vfs.FS, dir string) error {
	info, err := fsys.Stat(dir + "/.") // follows a symbolic link
	if err != nil {
		return err
	}
	if owner, ok := vfs.Owner(info); ok && owner != os.Geteuid() {
		return fmt.Errorf("%w: the data directory %s belongs to user %d and this process is user %d: run kvd as the owner, or change the owner of the directory (chown)",
			kv.ErrInvalidArgument, dir, owner, os.Geteuid())
	}
	if others := info.Mode().Perm() & 0o022; others != 0 {
		return fmt.Errorf("%w: other users may write to the data directory %s (mode %#o): remove their permission (chmod go-w)",
			kv.ErrInvalidArgument, dir, info.Mode().Perm())
	}
	return nil
}

// checkDirs refuses a store in which a directory is a symbolic link, which may lead to the
// files of another store, and a store with more partitions than STORE says.
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
		case errors.Is(err, fs.ErrNotExist): // opening the log or the partition reports it
		case err != nil:
			return err
		case info.Mode()&os.ModeSymlink != 0:
			return fmt.Errorf("%w: %s is a symbolic link: move its target here, or make the whole data directory a link",
				kv.ErrInvalidArgument, dir)
		}
	}
	return nil
}
