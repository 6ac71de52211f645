package vfs

import (
	"errors"
	"io"
	"os"
)

// ErrLocked: another process, or another part of this one, holds the lock. The
// error that wraps it names the pid.
var ErrLocked = errors.New("already locked")

// FS is a file system. Names are slash-separated paths. Errors satisfy
// errors.Is with the io/fs sentinels (ErrNotExist, ErrExist, ...). Safe for
// concurrent use.
type FS interface {
	// Create makes a new file for reading and writing, mode 0600. A file of that
	// name must not exist: numbers are never reused, so an existing file is a bug or
	// belongs to another program.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string) (File, error)
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// Rename gives a file, not a directory, a new name, replacing the file that
	// had it. Only WriteAtomic, Replace, Rotate, Move and lost+found use it; a lint test
	// keeps it so.
	Rename(oldName, newName string) error
	// MkdirAll makes a directory and its parents, mode 0700.
	MkdirAll(dir string) error
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory. It does not follow a symbolic link, but for
	// one in front of "/.".
	Stat(name string) (os.FileInfo, error)
	// Lock takes an exclusive lock on a file, which it creates if need be,
	// until the returned Closer is closed or the process ends. If another holds
	// it, the error wraps ErrLocked.
	Lock(name string) (io.Closer, error)
	// LockExisting takes a lock on a file or directory that is there, and writes
	// nothing: a shared one, of which there may be many, or an exclusive one. It is a
	// lock on what has the name now, and holds when that is renamed or removed. If
	// another holds it, the error wraps ErrLocked; errors.ErrUnsupported says that the
	// file system has no such locks.
	LockExisting(name string, shared bool) (io.Closer, error)
	// Usage tells how full the disk that holds path is.
	Usage(path string) (Usage, error)
}

// Usage is the size of a disk in bytes.
type Usage struct {
	Total uint64
	Free  uint64 // available to this process
}

// File is an open file. There is no file position: every access names its
// offset. ReadAt and WriteAt are safe for concurrent use; Sync and Close are
// serialized by the file, so a Sync never meets a closed descriptor that the
// kernel has given to another file (redis/redis #8751).
//
// After Close, everything but Name and Close returns an error that satisfies
// errors.Is(err, os.ErrClosed); a second Close does nothing and returns what the
// first did.
type File interface {
	io.ReaderAt
	// WriteAt writes all of p or returns an error; a file written past its end
	// grows, and a gap reads as zeros.
	io.WriterAt
	io.Closer
	// Sync makes the bytes of the file durable. After an error the file must
	// only be closed; implementations fail every later Sync with the same error.
	Sync() error
	// Stat describes the file, wherever it is now: see SameFile.
	Stat() (os.FileInfo, error)
	// Size returns the length of the file in bytes.
	Size() (int64, error)
	// SetAccess gives the file the permissions, user and group of one that Stat
	// described. They are durable when a later SyncDir of the directory returns.
	SetAccess(like os.FileInfo) error
	// Attributes returns the extended attributes of the file that mean the same for
	// a file in its place, among them its access control list; none if the system or
	// the file system has no such attributes. The caller owns them.
	Attributes() ([]Attribute, error)
	// SetAttributes gives the file the extended attributes of another one. An access
	// control list that the file has is removed if the other one has none. After an
	// error the file may have some of them. They are durable as with SetAccess. They are
	// not kept.
	SetAttributes(like []Attribute) error
	// Truncate sets the length of the file. Space that was reserved beyond that
	// length is given back.
	Truncate(size int64) error
	// Reserve takes space on the disk for the range, so that writes to it do not
	// fail for lack of space. The length of the file does not change, or it grows
	// to the end of the range, filled with zeros. No byte of the range may have
	// been written before, and none may be written until Reserve returns.
	//
	// After an error that satisfies IsNoSpace a part of the range may be reserved.
	// A power cut may take a reservation back. A file system that writes changed
	// blocks to new places (Btrfs, ZFS) does not keep this promise for bytes that
	// are overwritten.
	Reserve(offset, length int64) error
	// StartWriteback asks the kernel to begin writing dirty pages of the range,
	// without waiting. It is a hint: it promises nothing and reports nothing.
	StartWriteback(offset, length int64)
	// Name returns the name the file was opened by.
	Name() string
}

// SameFile reports whether two descriptions, by FS.Stat or File.Stat of one file
// system, are of the same file or directory, whatever its name.
func SameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) || a.Sys() == b.Sys() // the latter is for doubles
}
