package vfs

import (
	"fmt"
	"io"
	"path/filepath"
)

// ReadSmall returns the contents of a small file that an operator maintains, such as a
// certificate. Unlike FS.Open it follows symbolic links, which tools that renew such files
// replace. A file of more than limit bytes is an error.
func ReadSmall(fsys FS, name string, limit int) (_ []byte, err error) {
	if fsys == OS {
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return nil, err
		}
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
