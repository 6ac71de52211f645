package faultfs

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/vfs"
)

// FS is a vfs.FS whose operations an Injector may spoil. Safe for concurrent
// use.
type FS struct {
	inner    vfs.FS
	injector atomic.Pointer[Injector]
	count    atomic.Int64
	fired    atomic.Bool
}

var _ vfs.FS = (*FS)(nil)

// Wrap returns fsys with the faults of inj; a nil inj has none.
func Wrap(fsys vfs.FS, inj Injector) *FS {
	f := &FS{inner: fsys}
	f.SetInjector(inj)
	return f
}

// SetInjector puts inj in the place of the Injector, for files already open as
// well; nil ends the faults.
func (f *FS) SetInjector(inj Injector) {
	if inj == nil {
		f.injector.Store(nil)
		return
	}
	f.injector.Store(&inj)
}

// Count returns how many operations there have been.
func (f *FS) Count() int { return int(f.count.Load()) }

// Fired reports whether any operation has met a Fault.
func (f *FS) Fired() bool { return f.fired.Load() }

// begin numbers the operation, asks the Injector and waits out a delay.
func (f *FS) begin(op Op) Fault {
	op.Index = int(f.count.Add(1) - 1)
	inj := f.injector.Load()
	if inj == nil {
		return Fault{}
	}
	fault := (*inj).Inject(op)
	if fault.none() {
		return Fault{}
	}
	f.fired.Store(true)
	if fault.Delay != nil {
		fault.Delay()
	}
	if fault.Err != nil {
		fault.Err = &os.PathError{Op: op.Kind.String(), Path: op.Name, Err: fault.Err}
	}
	return fault
}

func (f *FS) Create(name string) (vfs.File, error) { return f.open(Create, name, f.inner.Create) }

func (f *FS) Open(name string) (vfs.File, error) { return f.open(Open, name, f.inner.Open) }

func (f *FS) OpenReadWrite(name string) (vfs.File, error) {
	return f.open(OpenReadWrite, name, f.inner.OpenReadWrite)
}

func (f *FS) open(kind Kind, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if fault := f.begin(Op{Kind: kind, Name: name}); fault.Err != nil {
		return nil, fault.Err
	}
	inner, err := open(name)
	if err != nil {
		return nil, err
	}
	return newFile(f, inner), nil
}

func (f *FS) Remove(name string) error {
	if fault := f.begin(Op{Kind: Remove, Name: name}); fault.Err != nil {
		return fault.Err
	}
	return f.inner.Remove(name)
}

func (f *FS) Rename(oldName, newName string) error {
	if fault := f.begin(Op{Kind: Rename, Name: oldName, NewName: newName}); fault.Err != nil {
		return fault.Err
	}
	return f.inner.Rename(oldName, newName)
}

func (f *FS) MkdirAll(dir string) error {
	if fault := f.begin(Op{Kind: MkdirAll, Name: dir}); fault.Err != nil {
		return fault.Err
	}
	return f.inner.MkdirAll(dir)
}

func (f *FS) SyncDir(dir string) error {
	switch fault := f.begin(Op{Kind: SyncDir, Name: dir}); {
	case fault.DropDirty:
		return errors.Join(fault.Err, f.dropDirtyEntries(dir))
	case fault.Err != nil:
		return fault.Err
	}
	return f.inner.SyncDir(dir)
}

func (f *FS) dropDirtyEntries(dir string) error {
	inner, ok := f.inner.(interface{ DropDirtyEntries(dir string) error })
	if !ok {
		panic("faultfs: DropDirty of a directory needs a vfs.Mem")
	}
	return inner.DropDirtyEntries(dir)
}

func (f *FS) List(dir string) ([]string, error) {
	if fault := f.begin(Op{Kind: List, Name: dir}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.inner.List(dir)
}

func (f *FS) Stat(name string) (os.FileInfo, error) {
	if fault := f.begin(Op{Kind: Stat, Name: name}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.inner.Stat(name)
}

func (f *FS) Lock(name string) (io.Closer, error) {
	if fault := f.begin(Op{Kind: Lock, Name: name}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.inner.Lock(name)
}

func (f *FS) LockExisting(name string, shared bool) (io.Closer, error) {
	if fault := f.begin(Op{Kind: LockExisting, Name: name}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.inner.LockExisting(name, shared)
}

func (f *FS) Usage(path string) (vfs.Usage, error) {
	if fault := f.begin(Op{Kind: Usage, Name: path}); fault.Err != nil {
		return vfs.Usage{}, fault.Err
	}
	return f.inner.Usage(path)
}
