package vfs

import (
	"bytes"
	"io"
	"os"
	"slices"
	"syscall"
)

// memFile is an open file of a Mem.
type memFile struct {
	fs       *Mem
	node     *fileNode // its fields are guarded by fs.mu
	name     string
	writable bool
	closed   bool // guarded by fs.mu
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.checkLocked("read", off); err != nil {
		return 0, err
	}
	n := f.node.current.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.step(StepWrite, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkWritableLocked("write", off); err != nil {
		return 0, err
	}
	if off > maxMemFile-int64(len(p)) {
		return 0, pathError("write", f.name, syscall.EFBIG)
	}
	n, err := int64(len(p)), error(nil)
	if limit := f.limitLocked(); off+n > limit {
		n, err = max(0, limit-off), pathError("write", f.name, syscall.ENOSPC)
	}
	if n > 0 {
		op := dataOp{off: off, n: n}
		if !allZero(p[:n]) {
			op.data = bytes.Clone(p[:n])
		}
		f.applyLocked(op)
	}
	return int(n), err
}

// SetAccess keeps permissions alone: a Mem has no users. It takes them as durable.
func (f *memFile) SetAccess(like os.FileInfo) error {
	f.fs.step(StepSetAccess, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.checkLocked("chmod", 0)
	if err == nil {
		err = f.fs.writableLocked("chmod", f.name)
	}
	if err != nil {
		return err
	}
	f.node.mode = like.Mode().Perm()
	return nil
}

// Attributes implements File.
func (f *memFile) Attributes() ([]Attribute, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkLocked("getxattr", 0); err != nil {
		return nil, err
	}
	return cloneAttributes(f.node.attributes), nil
}

// SetAttributes implements File. It takes them as durable.
func (f *memFile) SetAttributes(like []Attribute) error {
	f.fs.step(StepSetAttributes, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.checkLocked("setxattr", 0)
	if err == nil {
		err = f.fs.writableLocked("setxattr", f.name)
	}
	if err != nil {
		return err
	}
	set, remove := changesOf(f.node.attributes, like)
	after := slices.DeleteFunc(slices.Clone(f.node.attributes), func(a Attribute) bool {
		return slices.Contains(remove, a.Name) || slices.ContainsFunc(set, func(s Attribute) bool { return s.Name == a.Name })
	})
	f.node.attributes = append(after, cloneAttributes(set)...)
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.step(StepTruncate, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkWritableLocked("truncate", size); err != nil {
		return err
	}
	if size > maxMemFile {
		return pathError("truncate", f.name, syscall.EFBIG)
	}
	if size > f.limitLocked() {
		return pathError("truncate", f.name, syscall.ENOSPC)
	}
	f.applyLocked(dataOp{off: size, truncate: true})
	f.holdLocked(0)
	return nil
}

// Reserve holds space for the range without a change of the length. As of many
// file systems, what fits is held although the whole does not.
func (f *memFile) Reserve(off, length int64) error {
	f.fs.step(StepReserve, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkWritableLocked("reserve", min(off, length)); err != nil {
		return err
	}
	if off > maxMemFile-length {
		return pathError("reserve", f.name, syscall.EFBIG)
	}
	if limit := f.limitLocked(); off+length > limit {
		f.holdLocked(max(f.node.reserved, limit))
		return pathError("reserve", f.name, syscall.ENOSPC)
	}
	f.holdLocked(max(f.node.reserved, off+length))
	return nil
}

// holdLocked sets up to where space is reserved.
func (f *memFile) holdLocked(end int64) {
	f.fs.mu.used -= f.node.space()
	f.node.reserved = end
	f.fs.mu.used += f.node.space()
}

// limitLocked is the length up to which the free space lets the file grow.
func (f *memFile) limitLocked() int64 {
	free := f.fs.mu.capacity - f.fs.mu.used
	return f.node.space() + max(0, free)
}

func (f *memFile) applyLocked(op dataOp) {
	f.fs.mu.seq++
	op.seq = f.fs.mu.seq
	f.fs.mu.used -= f.node.space()
	op.apply(&f.node.current)
	f.fs.mu.used += f.node.space()
	f.node.pending = append(f.node.pending, op)
}

func (f *memFile) Sync() error {
	f.fs.step(StepSync, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.checkLocked("sync", 0)
	if err == nil {
		err = f.fs.writableLocked("sync", f.name)
	}
	if err != nil {
		return err
	}
	f.node.sync()
	return nil
}

// DropDirty does to the disk what a failed fsync of Linux does: the changes
// since the last Sync will never reach it, yet reads go on to show them, and a
// later Sync covers only what is changed from here on. Package faultfs uses it.
func (f *memFile) DropDirty() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.node.dropPending()
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.checkLocked("stat", 0); err != nil {
		return 0, err
	}
	return f.node.current.size, nil
}

func (f *memFile) Stat() (os.FileInfo, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.checkLocked("stat", 0); err != nil {
		return nil, err
	}
	return entry{file: f.node}.info(base(f.name)), nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.node.opens--
	if !f.node.alive() {
		f.fs.mu.used -= f.node.space()
	}
	return nil
}

func (f *memFile) StartWriteback(int64, int64) {}

func (f *memFile) checkLocked(op string, off int64) error {
	switch {
	case f.closed:
		return pathError(op, f.name, os.ErrClosed)
	case off < 0:
		return pathError(op, f.name, syscall.EINVAL)
	}
	return nil
}

func (f *memFile) checkWritableLocked(op string, off int64) error {
	if err := f.checkLocked(op, off); err != nil {
		return err
	}
	if !f.writable {
		return pathError(op, f.name, syscall.EBADF)
	}
	return f.fs.writableLocked(op, f.name)
}

// allZero reports whether p is all zeros.
func allZero(p []byte) bool {
	for len(p) > pageBytes {
		if !isZero(p[:pageBytes]) {
			return false
		}
		p = p[pageBytes:]
	}
	return isZero(p)
}
