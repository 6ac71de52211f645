package faultfs

import (
	"bytes"
	"errors"
	"os"

	"github.com/kvd-db/kvd/internal/vfs"
)

// file is an open file of an FS.
type file struct {
	vfs.File // Name, StartWriteback
	fs       *FS

	// turn serializes Sync and Close, whose fields follow. It is a channel and
	// not a mutex so that a Close waiting for a delayed Sync counts as blocked in
	// a testing/synctest bubble.
	turn     chan struct{}
	syncErr  error // of the first Sync that returned one
	closed   bool
	closeErr error
}

func newFile(fsys *FS, inner vfs.File) *file {
	return &file{File: inner, fs: fsys, turn: make(chan struct{}, 1)}
}

func (f *file) takeTurn() func() {
	f.turn <- struct{}{}
	return func() { <-f.turn }
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	fault := f.fs.begin(Op{Kind: Read, Name: f.Name(), Off: off, Len: len(p)})
	if fault.Err != nil {
		return 0, fault.Err
	}
	n, err := f.File.ReadAt(p, off)
	if i := fault.FlipOffset - off; i >= 0 && i < int64(n) {
		p[i] ^= fault.FlipMask
	}
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	fault := f.fs.begin(Op{Kind: Write, Name: f.Name(), Off: off, Len: len(p)})
	if fault.Err == nil {
		if i := fault.FlipOffset - off; fault.FlipMask != 0 && i >= 0 && i < int64(len(p)) {
			p = bytes.Clone(p)
			p[i] ^= fault.FlipMask
		}
		return f.File.WriteAt(p, off)
	}
	short := min(fault.Short, len(p)-1)
	if short <= 0 {
		return 0, fault.Err
	}
	n, err := f.File.WriteAt(p[:short], off)
	return n, errors.Join(fault.Err, err)
}

// Sync fails for ever once it has failed. The inner file is not synced by a
// Sync that a Fault spoils: another handle that syncs it finds its changes
// still dirty, or gone, as DropDirty says.
func (f *file) Sync() error {
	defer f.takeTurn()()
	switch {
	case f.closed:
		return f.File.Sync() // says so
	case f.syncErr != nil:
		return f.syncErr
	}
	fault := f.fs.begin(Op{Kind: Sync, Name: f.Name()})
	switch {
	case fault.DropDirty:
		f.dropDirty()
		f.syncErr = fault.Err
	case fault.Err != nil:
		f.syncErr = fault.Err
	default:
		f.syncErr = f.File.Sync()
	}
	return f.syncErr
}

func (f *file) dropDirty() {
	inner, ok := f.File.(interface{ DropDirty() })
	if !ok {
		panic("faultfs: DropDirty needs a file of a vfs.Mem")
	}
	inner.DropDirty()
}

func (f *file) Stat() (os.FileInfo, error) {
	if fault := f.fs.begin(Op{Kind: Stat, Name: f.Name()}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.File.Stat()
}

func (f *file) Size() (int64, error) {
	if fault := f.fs.begin(Op{Kind: Size, Name: f.Name()}); fault.Err != nil {
		return 0, fault.Err
	}
	return f.File.Size()
}

func (f *file) SetAccess(like os.FileInfo) error {
	if fault := f.fs.begin(Op{Kind: SetAccess, Name: f.Name()}); fault.Err != nil {
		return fault.Err
	}
	return f.File.SetAccess(like)
}

func (f *file) Attributes() ([]vfs.Attribute, error) {
	if fault := f.fs.begin(Op{Kind: Attributes, Name: f.Name()}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.File.Attributes()
}

func (f *file) SetAttributes(like []vfs.Attribute) error {
	if fault := f.fs.begin(Op{Kind: SetAttributes, Name: f.Name()}); fault.Err != nil {
		return fault.Err
	}
	return f.File.SetAttributes(like)
}

func (f *file) Truncate(size int64) error {
	if fault := f.fs.begin(Op{Kind: Truncate, Name: f.Name(), Off: size}); fault.Err != nil {
		return fault.Err
	}
	return f.File.Truncate(size)
}

func (f *file) Reserve(off, length int64) error {
	if fault := f.fs.begin(Op{Kind: Reserve, Name: f.Name(), Off: off, Len: int(length)}); fault.Err != nil {
		return fault.Err
	}
	return f.File.Reserve(off, length)
}

func (f *file) Close() error {
	defer f.takeTurn()()
	if !f.closed {
		f.closed = true
		fault := f.fs.begin(Op{Kind: Close, Name: f.Name()})
		f.closeErr = errors.Join(fault.Err, f.File.Close())
	}
	return f.closeErr
}
