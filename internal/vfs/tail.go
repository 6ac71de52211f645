package vfs

import (
	"os"
	"runtime/debug"
	"syscall"
)

const (
	// windowBytes is the length of a window: that of many pieces, and a multiple of the
	// size of a page. With 64 KiB a piece of 1 KiB cost 1.4 to 1.6 times as much.
	windowBytes = 256 << 10
	// pieceBytes is up to which length a piece goes through a window. Longer ones cost
	// mostly what copying them costs, either way.
	pieceBytes = 16 << 10
)

var zeros [windowBytes]byte

// Tail writes to a file that grows by many small pieces, without a system call for
// each, if the file system has the means: through a window, which is a part of the file
// mapped into memory.
//
// A piece in a window is in the kernel's page cache, as after File.WriteAt: other
// readers see it, it outlives the process, and File.Sync makes it durable. A window is
// filled with zeros first, so the file may end with up to windowBytes of them. They are
// written by one call, which makes the kernel take memory in large pieces and find the
// space on the disk, or report that there is none. Mapping what the file does not have
// yet cost more than a call for each piece.
//
// Nanoseconds of processor time for a piece, on ext4 and two cores (virtual), another
// thread of the process busy, with a sync every 8 MiB, which takes a part of it:
//
//	piece, bytes    64    576   1,088   4,160   16,448
//	File.WriteAt 1,500  2,400   2,800   6,900   19,000
//	Tail            70    450     900   2,800   13,000
//
// Not safe for concurrent use. Others may use the file meanwhile, but not truncate it,
// nor write where a piece may come.
type Tail struct {
	file   File
	mapper mapper // nil: there are no windows
	start  int64  // of the window
	window []byte // nil: none is mapped
}

// mapper is a File that can be mapped into memory.
type mapper interface {
	// mapAt maps so many bytes of the file from start on, a multiple of the size of a
	// page, with memory and space on the disk behind all of them.
	mapAt(start int64, length int) ([]byte, error)
	unmap(window []byte) error
}

// NewTail returns the tail of a file, which stays the caller's to close, after the Tail.
func NewTail(f File) *Tail {
	m, _ := f.(mapper)
	return &Tail{file: f, mapper: m}
}

// Write writes all of a piece at off, or returns an error. More says that many others
// are about to follow, so that a window pays.
//
// What a window cannot be had for, however that comes, is written by File.WriteAt. An
// error of the disk that only a mapped page meets is syscall.EIO.
func (t *Tail) Write(piece []byte, off int64, more bool) error {
	for len(piece) > 0 {
		if len(piece) > pieceBytes || !t.has(off) && !(more && t.move(off)) {
			_, err := t.file.WriteAt(piece, off)
			return err
		}
		n, err := t.fill(piece, off)
		if err != nil {
			return err
		}
		piece, off = piece[n:], off+int64(n)
	}
	return nil
}

// Close gives the window back.
func (t *Tail) Close() error {
	if t.window == nil {
		return nil
	}
	window := t.window
	t.window = nil
	return t.mapper.unmap(window)
}

func (t *Tail) has(off int64) bool {
	return off >= t.start && off < t.start+int64(len(t.window))
}

// move moves the window to where off is. If that fails it reports false, and there are no
// windows any more.
func (t *Tail) move(off int64) bool {
	if t.mapper == nil {
		return false
	}
	start := off - off%windowBytes
	err := t.Close()
	if err == nil {
		err = t.growTo(start + windowBytes)
	}
	if err == nil {
		t.window, err = t.mapper.mapAt(start, windowBytes)
		t.start = start
	}
	if err != nil {
		t.mapper = nil // why, WriteAt will say, if it is the disk's fault
	}
	return err == nil
}

// growTo fills the window that ends there with zeros, from where the file ends on.
func (t *Tail) growTo(end int64) error {
	size, err := t.file.Size()
	if at := max(size, end-windowBytes); err == nil && at < end {
		_, err = t.file.WriteAt(zeros[:end-at], at)
	}
	return err
}

// fill copies as much of a piece as fits into the window. The kernel reports errors of the
// disk by a signal, which the runtime makes a panic.
func (t *Tail) fill(piece []byte, off int64) (n int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = &os.PathError{Op: "write", Path: t.file.Name(), Err: syscall.EIO}
		default:
			panic(fault)
		}
	}()
	return copy(t.window[off-t.start:], piece), nil
}
