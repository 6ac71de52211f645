package descriptor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Lock locks the store in dir for a process that writes. It locks the directory
// itself, which cannot be removed unnoticed, and the file LOCK, which names the
// holder and is the only lock that older versions know. Where directories cannot be locked,
// as on NFS, it locks LOCK alone.
//
// Errors: vfs.ErrLocked if another process has the store open, also to read it.
func Lock(fsys vfs.FS, dir string) (io.Closer, error) {
	held, err := lockDir(fsys, dir, false)
	if err != nil {
		return nil, err
	}
	file, err := fsys.Lock(LockPath(dir))
	if vfs.CannotWrite(err) {
		return held, nil // the directory is locked; LOCK would only name the holder
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return locks{held, file}, nil
}

// LockShared locks the store in dir for a process that only reads; many may do so at
// once. It writes nothing.
//
// Errors: vfs.ErrLocked if another process has the store open to write.
func LockShared(fsys vfs.FS, dir string) (io.Closer, error) {
	held, err := lockDir(fsys, dir, true)
	if err != nil {
		return nil, err
	}
	file, err := fsys.LockExisting(LockPath(dir), true)
	switch {
	case err == nil:
		return locks{held, file}, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
		return held, nil // the directory is locked
	}
	return nil, errors.Join(err, held.Close())
}

// LockFilling locks a directory that is there, and that a restore or a repair is about to fill: of two
// that do so at once one finds it locked. Where directories cannot be locked it does nothing. It
// writes nothing.
//
// Errors: vfs.ErrLocked, also if a store in the directory is open.
func LockFilling(fsys vfs.FS, dir string) (io.Closer, error) {
	held, err := lockDir(fsys, dir, false)
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("another process fills %s, or has a store open there: %w", dir, err)
	}
	return held, err
}

// lockDir locks the directory. If another process holds it, the error names the pid in
// LOCK.
func lockDir(fsys vfs.FS, dir string, shared bool) (io.Closer, error) {
	held, err := fsys.LockExisting(dir, shared)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return locks{}, nil
	case !errors.Is(err, vfs.ErrLocked):
		return held, err
	}
	if file, fileErr := fsys.LockExisting(LockPath(dir), true); errors.Is(fileErr, vfs.ErrLocked) {
		return nil, fileErr
	} else if fileErr == nil {
		return nil, errors.Join(err, file.Close())
	}
	return nil, err
}

// locks are released together, the last one first.
type locks []io.Closer

func (l locks) Close() error {
	var errs []error
	for i := len(l) - 1; i >= 0; i-- {
		errs = append(errs, l[i].Close())
	}
	return errors.Join(errs...)
}
