package vfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ReadSmall returns the contents of a small file that an operator maintains, such as a
// certificate. Unlike FS.Open it follows symbolic links, which tools that renew such files
// replace. A file of more than limit bytes is an error, and so is what is no regular file: to
// open a named pipe could wait for ever.
func ReadSmall(fsys FS, name string, limit int) (_ []byte, err error) {
	info, name, err := StatFollowed(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no regular file (mode %v)", name, info.Mode())
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	contents, err := io.ReadAll(io.NewSectionReader(f, 0, int64(limit)+1))
	if err == nil && len(contents) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	if err != nil {
		return nil, err
	}
	return contents, nil
}

// StatFollowed is FS.Stat of the file that symbolic links lead to, and returns its name.
func StatFollowed(fsys FS, name string) (os.FileInfo, string, error) {
	if fsys == OS {
		followed, err := filepath.EvalSymlinks(name)
		if err != nil {
			return nil, "", err
		}
		name = followed
	}
	info, err := fsys.Stat(name)
	return info, name, err
}
