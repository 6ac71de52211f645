package repair

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const repairing = "A repair into this directory has not ended, or was interrupted.\n" +
	"If no kvd repair is running, remove the directory and repair again.\n"

// target is the directory of the new store.
type target struct {
	fsys vfs.FS
	dir  string
	dirs []string // those made
	lock io.Closer
}

// beginTarget makes the directory, or takes an empty one. It must not lie in the damaged
// store, which would change that.
//
// Errors: vfs.ErrLocked if another process fills it.
func beginTarget(fsys vfs.FS, dir, damaged string) (_ *target, err error) {
	if dir == damaged || damaged == "." && !path.IsAbs(dir) || strings.HasPrefix(dir, strings.TrimSuffix(damaged, "/")+"/") {
		return nil, fmt.Errorf("%w: %s lies in the damaged store; repair into a directory elsewhere", kv.ErrInvalidArgument, dir)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	t := &target{fsys: fsys, dir: dir}
	if t.lock, err = descriptor.LockFilling(fsys, dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.lock.Close())
		}
	}()
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "lost+found" })
	switch {
	case slices.Contains(names, descriptor.RepairingName) && !slices.Contains(names, descriptor.Name):
		return nil, fmt.Errorf("%w: %s holds a repair that was interrupted; remove the directory and repair again", kv.ErrInvalidArgument, dir)
	case len(names) > 0:
		return nil, fmt.Errorf("%w: %s is not empty: it holds %s; repair into a new or empty directory", kv.ErrInvalidArgument, dir, names[0])
	}
	if err := vfs.SyncParents(fsys, dir); err != nil {
		return nil, err
	}
	return t, vfs.WriteAtomic(fsys, path.Join(dir, descriptor.RepairingName), []byte(repairing))
}

// mkdir makes a directory of the new store.
func (t *target) mkdir(dir string) error {
	t.dirs = append(t.dirs, dir)
	return t.fsys.MkdirAll(dir)
}

// copyBytes is how much a copy reads at a time.
const copyBytes = 1 << 20

// copy copies a file, syncs it and calls read with the bytes of each part.
func (t *target) copy(from vfs.FS, name, to string, read func(bytes int64) error) (err error) {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	size, err := in.Size()
	if err != nil {
		return err
	}
	out, err := t.fsys.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf := make([]byte, min(size, copyBytes))
	for at := int64(0); at < size; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-at)]
		if n, err := in.ReadAt(buf, at); n < len(buf) && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s at offset %d: %w", name, at, err)
		}
		if _, err := out.WriteAt(buf, at); err != nil {
			return err
		}
		if err := read(int64(len(buf))); err != nil {
			return err
		}
	}
	return out.Sync()
}

// end makes a store of the directory.
func (t *target) end(d *descriptor.Descriptor) error {
	for _, dir := range t.dirs {
		if err := t.fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := t.fsys.SyncDir(t.dir); err != nil {
		return err
	}
	if err := vfs.WriteAtomic(t.fsys, descriptor.Path(t.dir), d.Encode()); err != nil {
		return err
	}
	if err := t.fsys.Remove(path.Join(t.dir, descriptor.RepairingName)); err != nil {
		return err
	}
	return t.fsys.SyncDir(t.dir)
}
