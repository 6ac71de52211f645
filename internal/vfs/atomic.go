package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// WriteAtomic makes data the whole content of the file name, durably: a crash
// at any moment leaves the old content or the new. It and Replace are the only ways
// in which kvd publishes a file.
//
// The data goes to name+".tmp" first; one that is left from a crash is replaced.
// Two calls for one name must not overlap.
//
// After an error the old file is still there, unless only the last step, the
// sync of the directory, failed: then readers see the new content, and which of
// the two a power cut leaves is unknown. The error then wraps ErrReplaced.
func WriteAtomic(fsys FS, name string, data []byte) error {
	return publish(fsys, name, name+".tmp", data, nil)
}

// oldAccess is the access to a file, for the one that replaces it.
type oldAccess struct {
	info       fs.FileInfo
	attributes []Attribute
}

// Replace is WriteAtomic for a file that an operator owns too, such as one that a
// service reads by its group: the new file has the permissions, user and group of
// the one that it replaces, and its access control list and other extended attributes, where
// the system has these. A name that is no regular file, or is free, gets a file
// as WriteAtomic makes it.
//
// The data goes to name+".kvd-tmp" first: the directory is the operator's, and name+".tmp" may be
// another file of theirs.
//
// Errors: those of WriteAtomic; fs.ErrPermission if this process may not give the new
// file that user or group; ErrAttributes if it cannot give it those attributes, or read
// them. The old file is then unchanged.
func Replace(fsys FS, name string, data []byte) error {
	tmp := name + ".kvd-tmp"
	info, err := fsys.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return publish(fsys, name, tmp, data, nil)
	case err != nil:
		return err
	case !info.Mode().IsRegular(): // a symbolic link has permissions that say nothing
		return publish(fsys, name, tmp, data, nil)
	}
	old := &oldAccess{info: info}
	if old.attributes, err = readAttributesOf(fsys, name); err != nil {
		return fmt.Errorf("%w: %w", ErrAttributes, err)
	}
	return publish(fsys, name, tmp, data, old)
}

// ErrAttributes: the attributes of a file cannot be read or given to the one that replaces it.
// Without them other users might read it, or no longer.
var ErrAttributes = errors.New("keep access control list and extended attributes")

func readAttributesOf(fsys FS, name string) (attributes []Attribute, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Attributes()
}

// publish is WriteAtomic by way of the file tmp, with the access of another file, unless that is nil.
func publish(fsys FS, name, tmp string, data []byte, old *oldAccess) error {
	if err := RemoveIfThere(fsys, tmp); err != nil {
		return err
	}
	if err := writeSynced(fsys, tmp, data, old); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	}
	return nil
}

// WriteNew makes a new file with the data in it, durably, mode 0600.
//
// Errors: fs.ErrExist if the name is taken, also by a symbolic link. After an error there is
// no new file, if it could be removed.
func WriteNew(fsys FS, name string, data []byte) error {
	if err := writeSynced(fsys, name, data, nil); err != nil {
		return err
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return errors.Join(err, fsys.Remove(name))
	}
	return nil
}

// ErrReplaced: WriteAtomic failed after the file had its new content.
var ErrReplaced = errors.New("replaced, but not durably")

// RemoveIfThere removes a file or an empty directory, and returns nil if the name is free.
func RemoveIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Rotate gives a file that is closed another name, in place of an older one.
func Rotate(fsys FS, name, old string) error {
	if err := fsys.Rename(name, old); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// Move gives a file that is closed a name in another directory, in place of one that has it. The
// caller syncs both directories: until then a power cut may undo the move, but not lose the file.
func Move(fsys FS, from, to string) error { return fsys.Rename(from, to) }

// giveTo gives the access to a new file, which others may not read until the last step, and which
// is empty: the permissions for the group mean something else before it has the access control
// list.
func (l *oldAccess) giveTo(f File) error {
	err := f.SetAccess(private{l.info})
	if err == nil {
		if err = f.SetAttributes(l.attributes); err != nil {
			return fmt.Errorf("%w: %w", ErrAttributes, err)
		}
		err = f.SetAccess(l.info)
	}
	if err != nil {
		return fmt.Errorf("keep permissions, user and group: %w", err)
	}
	return nil
}

// private describes a file of the same user and group that others may not read.
type private struct{ fs.FileInfo }

func (private) Mode() fs.FileMode { return 0o600 }

// writeSynced creates a file with the data in it, synced. After an error there
// is no such file, if it could be removed.
func writeSynced(fsys FS, name string, data []byte, old *oldAccess) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if old != nil {
		err = old.giveTo(f)
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(name))
	}
	return nil
}
