package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// maxSmallFile bounds the files that are read into memory whole: the largest manifest,
// and one byte more to detect a larger one.
const maxSmallFile = 64<<20 + 1

// readSmall returns the content of a file that should be small. Of a file that is too
// large it returns only enough to detect that.
func readSmall(fsys vfs.FS, name string) (data []byte, err error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, kv.Corruptf(name, -1, "file is missing")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data = make([]byte, min(size, maxSmallFile))
	if n, err := f.ReadAt(data, 0); n < len(data) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	} else if n < len(data) {
		return nil, kv.Corruptf(name, int64(n), "file ends before its %d bytes", size)
	}
	return data, nil
}
