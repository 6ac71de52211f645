package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// clean makes the directory match v: it deletes files that kvd certainly wrote and no
// longer needs and moves other files to lost+found (see the package comment).
// Directories stay. It returns the largest file number that it found.
//
// With keep it removes no table, value file or manifest, but moves them too: v may be an older copy,
// and these may be what took the place of the files that it misses.
//
// A file that cannot be removed does not prevent opening: clean tells the listener, and
// the next Open tries again.
func clean(fsys vfs.FS, dir string, v *Version, keep bool, listener *event.Listener) (kv.FileNum, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return 0, err
	}
	live := make(map[kv.FileNum]bool)
	for _, num := range v.Files() {
		live[num] = true
	}
	largest := v.Num
	for _, name := range names {
		kind, num := ParseName(name)
		largest = max(largest, num)
		dead := false
		switch kind {
		case FileCurrent, FileLostFound:
			continue
		case FileTable, FileValues:
			if live[num] {
				continue
			}
			dead = num < v.NextFile && !keep
		case FileManifest:
			if num == v.Num {
				continue
			}
			dead = num < v.NextFile && !keep
		case FileTemp:
			dead = true
		}
		if dead {
			err = fsys.Remove(path.Join(dir, name))
		} else {
			err = setAside(fsys, dir, name, listener)
		}
		if err != nil {
			backgroundError(listener, fmt.Errorf("clean up %s, tried again at the next open: %w", path.Join(dir, name), err))
		}
	}
	return largest, nil
}

// setAside moves a file to lost+found under a name that is free there. It leaves
// directories alone.
func setAside(fsys vfs.FS, dir, name string, listener *event.Listener) error {
	from := path.Join(dir, name)
	if info, err := fsys.Stat(from); err != nil || info.IsDir() {
		return err
	}
	aside := path.Join(dir, LostFoundName)
	if err := fsys.MkdirAll(aside); err != nil {
		return err
	}
	to := path.Join(aside, name)
	for i := 1; ; i++ {
		_, err := fsys.Stat(to)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		to = path.Join(aside, fmt.Sprintf("%s.%d", name, i))
	}
	if err := fsys.Rename(from, to); err != nil {
		return err
	}
	if err := errors.Join(fsys.SyncDir(aside), fsys.SyncDir(dir)); err != nil {
		return err
	}
	if listener != nil && listener.FileSetAside != nil {
		listener.FileSetAside(event.SetAside{From: from, To: to})
	}
	return nil
}

func backgroundError(listener *event.Listener, err error) {
	if listener != nil && listener.BackgroundError != nil {
		listener.BackgroundError(err)
	}
}
