package vfs

import (
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Watched is an FS that knows which operations on it, and on its files, have not
// returned. A disk that hangs does not report an error: the operation that it
// holds up is all there is to see.
//
// An operation costs a mutex at its begin and at its end, and neither a look at
// the clock nor a timer. Time passes when the caller of Pass says so.
type Watched struct {
	inner FS

	mu       sync.Mutex
	underWay []*operation
	spare    []*operation // ended, kept for their memory
}

var _ FS = (*Watched)(nil)

// Operation is one that is under way.
type Operation struct {
	Kind string // "write", "sync", ...
	Name string // of the file or directory; of a rename, the old name
	Age  time.Duration
}

type operation struct {
	Operation
	index int  // in underWay
	seen  bool // by Pass
}

// Watch returns fsys, watched.
func Watch(fsys FS) *Watched { return &Watched{inner: fsys} }

// Pass makes the operations under way older by so much, those apart that began
// since the last call, and returns those of at least an age, the oldest first. An
// Age is therefore at most the true one. A caller that counts only time in which
// the process ran blames no disk for a pause of the process.
//
// It waits for no operation.
func (w *Watched) Pass(by, least time.Duration) (stuck []Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.underWay {
		if op.seen {
			op.Age += by
		}
		op.seen = true
		if op.Age >= least {
			stuck = append(stuck, op.Operation)
		}
	}
	slices.SortStableFunc(stuck, func(a, b Operation) int { return int(b.Age - a.Age) })
	return stuck
}

func (w *Watched) begin(kind, name string) *operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	var op *operation
	if n := len(w.spare); n > 0 {
		op, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		op = new(operation)
	}
	*op = operation{Operation: Operation{Kind: kind, Name: name}, index: len(w.underWay)}
	w.underWay = append(w.underWay, op)
	return op
}

func (w *Watched) end(op *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.underWay) - 1
	w.underWay[op.index] = w.underWay[last]
	w.underWay[op.index].index = op.index
	w.underWay = w.underWay[:last]
	w.spare = append(w.spare, op)
}

// Create implements FS.
func (w *Watched) Create(name string) (File, error) { return w.open("create", name, w.inner.Create) }

// Open implements FS.
func (w *Watched) Open(name string) (File, error) { return w.open("open", name, w.inner.Open) }

// OpenReadWrite implements FS.
func (w *Watched) OpenReadWrite(name string) (File, error) {
	return w.open("open", name, w.inner.OpenReadWrite)
}

func (w *Watched) open(kind, name string, open func(string) (File, error)) (File, error) {
	defer w.end(w.begin(kind, name))
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w}, nil
}

// Remove implements FS.
func (w *Watched) Remove(name string) error {
	defer w.end(w.begin("remove", name))
	return w.inner.Remove(name)
}

// Rename implements FS.
func (w *Watched) Rename(oldName, newName string) error {
	defer w.end(w.begin("rename", oldName))
	return w.inner.Rename(oldName, newName)
}

// MkdirAll implements FS.
func (w *Watched) MkdirAll(dir string) error {
	defer w.end(w.begin("mkdir", dir))
	return w.inner.MkdirAll(dir)
}

// SyncDir implements FS.
func (w *Watched) SyncDir(dir string) error {
	defer w.end(w.begin("sync", dir))
	return w.inner.SyncDir(dir)
}

// List implements FS.
func (w *Watched) List(dir string) ([]string, error) {
	defer w.end(w.begin("list", dir))
	return w.inner.List(dir)
}

// Stat implements FS.
func (w *Watched) Stat(name string) (os.FileInfo, error) {
	defer w.end(w.begin("stat", name))
	return w.inner.Stat(name)
}

// Lock implements FS.
func (w *Watched) Lock(name string) (io.Closer, error) {
	defer w.end(w.begin("lock", name))
	return w.inner.Lock(name)
}

// LockExisting implements FS.
func (w *Watched) LockExisting(name string, shared bool) (io.Closer, error) {
	defer w.end(w.begin("lock", name))
	return w.inner.LockExisting(name, shared)
}

// Usage implements FS.
func (w *Watched) Usage(path string) (Usage, error) {
	defer w.end(w.begin("statfs", path))
	return w.inner.Usage(path)
}

// watchedFile is an open file of a Watched.
type watchedFile struct {
	file File
	fs   *Watched
}

func (f *watchedFile) Name() string { return f.file.Name() }

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	defer f.fs.end(f.fs.begin("read", f.Name()))
	return f.file.ReadAt(p, off)
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.fs.end(f.fs.begin("write", f.Name()))
	return f.file.WriteAt(p, off)
}

func (f *watchedFile) Sync() error {
	defer f.fs.end(f.fs.begin("sync", f.Name()))
	return f.file.Sync()
}

func (f *watchedFile) Stat() (os.FileInfo, error) {
	defer f.fs.end(f.fs.begin("stat", f.Name()))
	return f.file.Stat()
}

func (f *watchedFile) Size() (int64, error) {
	defer f.fs.end(f.fs.begin("stat", f.Name()))
	return f.file.Size()
}

func (f *watchedFile) SetAccess(like os.FileInfo) error {
	defer f.fs.end(f.fs.begin("chmod", f.Name()))
	return f.file.SetAccess(like)
}

func (f *watchedFile) Attributes() ([]Attribute, error) {
	defer f.fs.end(f.fs.begin("getxattr", f.Name()))
	return f.file.Attributes()
}

func (f *watchedFile) SetAttributes(like []Attribute) error {
	defer f.fs.end(f.fs.begin("setxattr", f.Name()))
	return f.file.SetAttributes(like)
}

func (f *watchedFile) Truncate(size int64) error {
	defer f.fs.end(f.fs.begin("truncate", f.Name()))
	return f.file.Truncate(size)
}

func (f *watchedFile) Reserve(offset, length int64) error {
	defer f.fs.end(f.fs.begin("reserve", f.Name()))
	return f.file.Reserve(offset, length)
}

func (f *watchedFile) StartWriteback(offset, length int64) {
	defer f.fs.end(f.fs.begin("write back", f.Name()))
	f.file.StartWriteback(offset, length)
}

func (f *watchedFile) Close() error {
	defer f.fs.end(f.fs.begin("close", f.Name()))
	return f.file.Close()
}
