//go:build !unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// OS is the file system of the operating system, which this build cannot use: a store
// on a disk needs the locks and syncs of a Unix system. Clients need no file, and a
// store in memory uses Mem.
var OS FS = noFS{}

type noFS struct{}

var errNoFS = fmt.Errorf("%w: stores on a disk need Linux or another Unix system, not %s; kvd serve --dev keeps one in memory",
	errors.ErrUnsupported, runtime.GOOS)

func (noFS) Create(name string) (File, error)        { return nil, noFSError("create", name) }
func (noFS) Open(name string) (File, error)          { return nil, noFSError("open", name) }
func (noFS) OpenReadWrite(name string) (File, error) { return nil, noFSError("open", name) }
func (noFS) Remove(name string) error                { return noFSError("remove", name) }
func (noFS) Rename(oldName, _ string) error          { return noFSError("rename", oldName) }
func (noFS) MkdirAll(dir string) error               { return noFSError("mkdir", dir) }
func (noFS) SyncDir(dir string) error                { return noFSError("sync", dir) }
func (noFS) List(dir string) ([]string, error)       { return nil, noFSError("list", dir) }
func (noFS) Stat(name string) (os.FileInfo, error)   { return nil, noFSError("stat", name) }
func (noFS) Lock(name string) (io.Closer, error)     { return nil, noFSError("lock", name) }
func (noFS) LockExisting(name string, _ bool) (io.Closer, error) {
	return nil, noFSError("lock", name)
}
func (noFS) Usage(path string) (Usage, error) { return Usage{}, noFSError("usage", path) }

func noFSError(op, name string) error { return &os.PathError{Op: op, Path: name, Err: errNoFS} }

// Owner reports that files have no owner.
func Owner(os.FileInfo) (uid int, ok bool) { return 0, false }
