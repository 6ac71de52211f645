package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/vfs"
)

// file is one file of a log, and the goroutine that writes it.
type file struct {
	fs       vfs.FS
	name     string
	maxBytes int64
	report   func(error)

	lines chan Event
	ended chan struct{}
	lost  atomic.Uint64 // lines that the file did not take, since a line said so
	total atomic.Uint64 // of them

	// Used by the goroutine that writes.
	file   vfs.File
	size   int64
	torn   bool        // the last line has no end: a crash left it so
	old    fs.FileInfo // of the file that was set aside last; nil: none was
	failed bool        // the last write, which was reported
}

func openFile(fsys vfs.FS, name string, maxBytes int64, report func(error)) (*file, error) {
	f := &file{fs: fsys, name: name, maxBytes: maxBytes, report: report, lines: make(chan Event, queueLines), ended: make(chan struct{})}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	go f.run()
	return f, nil
}

func (f *file) open() (err error) {
	f.file, err = f.fs.OpenReadWrite(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		if f.file, err = f.fs.Create(f.name); err == nil {
			f.keepAccess()
		}
	}
	if err != nil {
		return err
	}
	if f.size, err = f.file.Size(); err != nil {
		return errors.Join(err, f.file.Close())
	}
	if f.torn, err = f.lacksEnd(); err != nil {
		return errors.Join(err, f.file.Close())
	}
	return nil
}

// lacksEnd reports whether the file has a last line without a newline.
func (f *file) lacksEnd() (bool, error) {
	if f.size == 0 {
		return false, nil
	}
	var last [1]byte
	if _, err := f.file.ReadAt(last[:], f.size-1); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return last[0] != '\n', nil
}

// keepAccess lets those read a new file who may read the one that was set aside. If that cannot be
// kept, the file stays private, and takes lines.
func (f *file) keepAccess() {
	if f.old == nil {
		return
	}
	if err := f.file.SetAccess(f.old); err != nil {
		f.report(fmt.Errorf("audit log %s: the file is new, and does not have the permissions of the one before: %w", f.name, err))
	}
}

// close writes what is waiting. Nothing is added any more.
func (f *file) close() error {
	close(f.lines)
	<-f.ended
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func (f *file) run() {
	defer close(f.ended)
	for e := range f.lines {
		err := f.write(e)
		if err != nil {
			if e.Kind == dropped {
				f.lost.Add(e.Dropped)
			} else {
				f.lost.Add(1)
				f.total.Add(1)
			}
			if !f.failed {
				f.report(fmt.Errorf("audit log %s: %w", f.name, err))
			}
		}
		f.failed = err != nil
	}
}

func (f *file) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if f.file != nil && f.size > 0 && f.size+int64(len(line)) > f.maxBytes {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			f.file = nil
			return err
		}
	}
	if f.torn {
		line = append([]byte{'\n'}, line...) // so that this line is not part of that one
	}
	if _, err := f.file.WriteAt(line, f.size); err != nil {
		// The next line is written over what there is of this one, and may be shorter.
		return errors.Join(err, f.file.Truncate(f.size))
	}
	f.size += int64(len(line))
	f.torn = false
	return nil
}

// rotate renames the file. A new one is opened by the next write.
func (f *file) rotate() error {
	old, err := f.file.Stat()
	if err == nil {
		f.old = old
	}
	err = errors.Join(err, f.file.Close())
	f.file = nil
	if err != nil {
		return err
	}
	return vfs.Rotate(f.fs, f.name, f.name+".1")
}
