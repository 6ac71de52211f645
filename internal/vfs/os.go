//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system.
//
// Files are opened without following a symbolic link in the last component of
// the name, and only regular files are opened. An open that finds no file descriptor is
// tried again for half a minute: see withDescriptor. Sync is fdatasync on Linux: it
// covers the bytes and the length of the file, not its times.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) OpenReadWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(oldName, newName string) error {
	info, err := os.Lstat(oldName)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: unix.EISDIR}
	}
	return os.Rename(oldName, newName)
}

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osFS) SyncDir(dir string) error {
	d, err := openFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := withDescriptor(func() ([]os.DirEntry, error) { return os.ReadDir(dir) }) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (os.FileInfo, error) { return os.Lstat(name) }

func (osFS) Usage(path string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := blockUnit(&s)
	return Usage{Total: uint64(s.Blocks) * unit, Free: uint64(s.Bavail) * unit}, nil
}

// Lock is flock(2): the kernel releases it when the process ends, in whatever way. The file has
// the pid of its holder, for the error of a process that is refused.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockOS(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osLock{f: f}, nil
}

// LockExisting is flock(2) too.
func (osFS) LockExisting(name string, shared bool) (io.Closer, error) {
	f, err := openFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // of a FIFO it would wait
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	if err := flock(f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osLock{f: f}, nil
}

func flock(f *os.File, how int) error {
	var err error
	if ctlErr := control(f, func(fd int) { err = unix.Flock(fd, how|unix.LOCK_NB) }); ctlErr != nil {
		return ctlErr
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return lockedBy(f.Name(), holder(f))
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		// NFS locks nothing exclusively that is open for reading alone.
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
}

func lockOS(f *os.File) error {
	if err := flock(f, unix.LOCK_EX); err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder reads the pid from a lock file, or "unknown" when its holder has not
// written it yet.
func holder(f *os.File) string {
	buf := make([]byte, 20)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "unknown"
	}
	pid := strings.TrimSpace(string(buf[:n]))
	if _, err := strconv.ParseUint(pid, 10, 63); err != nil {
		return "unknown"
	}
	return pid
}

type osLock struct {
	once sync.Once
	f    *os.File
	err  error
}

func (l *osLock) Close() error {
	l.once.Do(func() { l.err = l.f.Close() })
	return l.err
}

// osFile is a File of the operating system. It has no method that File does not have, or
// code above could come to depend on what the doubles of the tests cannot do.
type osFile struct {
	file *os.File // safe for concurrent use, also with Close

	mu struct {
		sync.Mutex
		syncErr  error // of the first Sync that returned one
		closed   bool
		closeErr error
	}
}

// openFile is os.OpenFile, which waits for a descriptor.
func openFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	// #nosec G304 -- names come from the operator and from the store, never from a client
	return withDescriptor(func() (*os.File, error) { return os.OpenFile(name, flag, mode) })
}

func openOS(name string, flag int) (File, error) {
	f, err := openFile(name, flag|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: name, Err: errNotRegular(info)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{file: f}, nil
}

func errNotRegular(info os.FileInfo) error {
	if info.IsDir() {
		return unix.EISDIR
	}
	return fmt.Errorf("not a regular file (%v)", info.Mode().Type())
}

func (f *osFile) Name() string { return f.file.Name() }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.file.WriteAt(p, off) }

// Truncate implements File. Ext4 gives back what is reserved beyond the new end only if the
// file does not grow, so a file that grew is truncated once more.
func (f *osFile) Truncate(size int64) error {
	before, err := f.Size()
	if err != nil {
		return err
	}
	if err := f.file.Truncate(size); err != nil || size <= before {
		return err
	}
	return f.file.Truncate(size)
}

func (f *osFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.mu.closed:
		return &os.PathError{Op: "sync", Path: f.Name(), Err: os.ErrClosed}
	case f.mu.syncErr == nil:
		f.mu.syncErr = syncOS(f.file)
	}
	return f.mu.syncErr
}

func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		f.mu.closed = true
		f.mu.closeErr = f.file.Close()
	}
	return f.mu.closeErr
}

func (f *osFile) Stat() (os.FileInfo, error) { return f.file.Stat() }

// Attributes implements File.
func (f *osFile) Attributes() ([]Attribute, error) { return attributesOf(f.file) }

// SetAttributes implements File.
func (f *osFile) SetAttributes(like []Attribute) error { return setAttributes(f.file, like) }

func (f *osFile) Size() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Reserve implements File.
func (f *osFile) Reserve(offset, length int64) error {
	err := reserveOS(f.file, offset, length)
	if errors.Is(err, errors.ErrUnsupported) {
		return writeZeros(f, offset, length)
	}
	return err
}

// writeZeros writes zeros to a range, for file systems that cannot reserve space.
func writeZeros(f File, offset, length int64) error {
	zeros := make([]byte, min(length, 64<<10))
	for length > 0 {
		n, err := f.WriteAt(zeros[:min(length, int64(len(zeros)))], offset)
		if err != nil {
			return err
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}

func (f *osFile) StartWriteback(offset, length int64) { startWriteback(f.file, offset, length) }

// control calls fn with the descriptor of f, which stays open until fn returns.
func control(f *os.File, fn func(fd int)) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { fn(int(fd)) })
}
