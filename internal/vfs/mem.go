package vfs

import (
	"cmp"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxMemFile bounds the length of a file in a Mem, so that a wild offset is an
// error (EFBIG) and not an allocation.
const maxMemFile = 1 << 40

// Mem is an FS in memory that knows what a power cut would leave of it (see
// CrashImage). It holds no more than the contract of FS promises: bytes are
// durable after Sync, names after SyncDir.
//
// Names are cleaned as by path.Clean; "/a" and "a" are the same. Zeros take no
// memory. All methods are safe for concurrent use.
type Mem struct {
	steps atomic.Int64
	hook  atomic.Pointer[func(Step)]

	mu struct {
		sync.RWMutex
		root     *dirNode
		pending  []dirOp     // changes of entries not covered by a SyncDir, oldest first
		seq      uint64      // of the newest data or directory operation
		locks    map[any]int // by node: 1 and more are shared, -1 is exclusive
		capacity int64
		used     int64 // the lengths, or the reserved space, of all files alive
		readOnly bool  // see SetReadOnly
	}
}

// NewMem returns an empty Mem of unlimited capacity.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.root = &dirNode{}
	m.mu.locks = map[any]int{}
	m.mu.capacity = math.MaxInt64
	return m
}

// SetCapacity sets the size of the disk. The lengths of all files count, holes
// included, or what they have reserved if that is more, until a file has neither
// a name nor an open handle. What would go
// past it fails with ENOSPC, a write after storing the part that fits.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

// SetReadOnly makes the file system read-only, or writable again, as an error of the disk
// or an operator may at any moment: meanwhile what would change it fails with EROFS,
// syncs too, also through files that are open for writing. Reads and locks of files that
// are there go on.
func (m *Mem) SetReadOnly(readOnly bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.readOnly = readOnly
}

// writableLocked returns EROFS while the file system is read-only.
func (m *Mem) writableLocked(op, name string) error {
	if m.mu.readOnly {
		return pathError(op, name, syscall.EROFS)
	}
	return nil
}

// Usage returns the capacity and what is left of it.
func (m *Mem) Usage(name string) (Usage, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, e, err := m.lookupLocked("usage", name)
	if err != nil {
		return Usage{}, err
	}
	if !e.exists() {
		return Usage{}, pathError("usage", name, syscall.ENOENT)
	}
	return Usage{Total: uint64(m.mu.capacity), Free: uint64(max(0, m.mu.capacity-m.mu.used))}, nil
}

func (m *Mem) Create(name string) (File, error) {
	m.step(StepCreate, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	file, err := m.createLocked("create", name)
	if err != nil {
		return nil, err
	}
	return m.openLocked(file, name, true), nil
}

func (m *Mem) createLocked(op, name string) (*fileNode, error) {
	dir, e, err := m.lookupLocked(op, name)
	if err != nil {
		return nil, err
	}
	if e.exists() {
		return nil, pathError(op, name, syscall.EEXIST)
	}
	if err := m.writableLocked(op, name); err != nil {
		return nil, err
	}
	file := &fileNode{mode: 0o600, linked: true}
	m.editLocked(edit{dir, entry{name: e.name, file: file}})
	return file, nil
}

func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, e, err := m.lookupLocked("open", name)
	switch {
	case err != nil:
		return nil, err
	case e.dir != nil:
		return nil, pathError("open", name, syscall.EISDIR)
	case e.file == nil:
		return nil, pathError("open", name, syscall.ENOENT)
	}
	if writable {
		if err := m.writableLocked("open", name); err != nil {
			return nil, err
		}
	}
	return m.openLocked(e.file, name, writable), nil
}

func (m *Mem) openLocked(file *fileNode, name string, writable bool) File {
	file.opens++
	return &memFile{fs: m, node: file, name: name, writable: writable}
}

func (m *Mem) Remove(name string) error {
	m.step(StepRemove, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, e, err := m.lookupLocked("remove", name)
	switch {
	case err != nil:
		return err
	case m.mu.readOnly: // whether the file is there or not
		return pathError("remove", name, syscall.EROFS)
	case !e.exists():
		return pathError("remove", name, syscall.ENOENT)
	case e.dir != nil && (e.dir == m.mu.root || len(e.dir.current) > 0):
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.editLocked(edit{dir, entry{name: e.name}})
	m.unlinkLocked(e.file)
	return nil
}

func (m *Mem) Rename(oldName, newName string) error {
	m.step(StepRename, oldName)
	m.mu.Lock()
	defer m.mu.Unlock()
	oldDir, from, err := m.lookupLocked("rename", oldName)
	if err != nil {
		return err
	}
	newDir, to, err := m.lookupLocked("rename", newName)
	switch {
	case err != nil:
		return err
	case !from.exists():
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.ENOENT}
	case from.dir != nil || to.dir != nil:
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.EISDIR}
	case m.mu.readOnly:
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.EROFS}
	case from.file == to.file:
		return nil
	}
	m.editLocked(edit{oldDir, entry{name: from.name}}, edit{newDir, entry{name: to.name, file: from.file}})
	m.unlinkLocked(to.file)
	return nil
}

func (m *Mem) MkdirAll(dir string) error {
	m.step(StepMkdir, dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.mu.root
	for _, part := range split(dir) {
		e := at.current.get(part)
		switch {
		case e.file != nil:
			return pathError("mkdir", dir, syscall.ENOTDIR)
		case e.dir == nil:
			if err := m.writableLocked("mkdir", dir); err != nil {
				return err
			}
			e = entry{name: part, dir: &dirNode{}}
			m.editLocked(edit{at, e})
		}
		at = e.dir
	}
	return nil
}

// SyncDir makes the entries of a directory durable. A rename between two
// directories is one change of both: syncing either syncs the other too, as
// the journal of a file system does.
func (m *Mem) SyncDir(dir string) error {
	m.step(StepSyncDir, dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked("syncdir", dir)
	if err == nil {
		err = m.writableLocked("syncdir", dir)
	}
	if err != nil {
		return err
	}
	dirs := m.syncedTogetherLocked(d)
	for _, op := range m.mu.pending {
		for _, e := range op.edits {
			if e.dir.lossy && op.touches(dirs) {
				e.dir.synced = e.dir.synced.with(e.entry)
			}
		}
	}
	m.forgetPendingLocked(dirs)
	for _, d := range dirs {
		if !d.lossy {
			d.synced = d.current
		}
	}
	return nil
}

// DropDirtyEntries does to the disk what a failed fsync of a directory may do: the changes of entries
// that SyncDir would have made durable will never reach it, yet lookups go on to show them, and
// a later SyncDir covers only what is changed from here on. Package faultfs uses it.
func (m *Mem) DropDirtyEntries(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked("syncdir", dir)
	if err != nil {
		return err
	}
	dirs := m.syncedTogetherLocked(d)
	for _, op := range m.mu.pending {
		for _, e := range op.edits {
			if op.touches(dirs) {
				e.dir.lossy = true
			}
		}
	}
	m.forgetPendingLocked(dirs)
	return nil
}

// syncedTogetherLocked returns the directories that a sync of d syncs.
func (m *Mem) syncedTogetherLocked(d *dirNode) []*dirNode {
	dirs := []*dirNode{d}
	for i := len(m.mu.pending) - 1; i >= 0; i-- {
		op := &m.mu.pending[i]
		if !op.touches(dirs) {
			continue
		}
		for _, e := range op.edits {
			if !slices.Contains(dirs, e.dir) {
				dirs = append(dirs, e.dir)
				i = len(m.mu.pending) // look again: its newer changes come too
			}
		}
	}
	return dirs
}

// forgetPendingLocked drops the unsynced changes of directories from the list.
func (m *Mem) forgetPendingLocked(dirs []*dirNode) {
	m.mu.pending = slices.DeleteFunc(m.mu.pending, func(op dirOp) bool { return op.touches(dirs) })
}

func (m *Mem) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, err := m.dirLocked("list", dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(d.current))
	for i, e := range d.current {
		names[i] = e.name
	}
	return names, nil
}

func (m *Mem) Stat(name string) (os.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, e, err := m.lookupLocked("stat", name)
	if err != nil {
		return nil, err
	}
	if !e.exists() {
		return nil, pathError("stat", name, syscall.ENOENT)
	}
	return e.info(base(name)), nil
}

// Lock takes a lock within this Mem; a crash image has none.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.step(StepCreate, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	_, e, err := m.lookupLocked("lock", name)
	switch {
	case err != nil:
		return nil, err
	case e.dir != nil:
		return nil, pathError("lock", name, syscall.EISDIR)
	case !e.exists():
		if e.file, err = m.createLocked("lock", name); err != nil {
			return nil, err
		}
	case m.mu.readOnly: // its holder could not write its pid
		return nil, pathError("lock", name, syscall.EROFS)
	}
	return m.lockLocked(e.node(), name, false)
}

// LockExisting takes a lock within this Mem, likewise.
func (m *Mem) LockExisting(name string, shared bool) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, e, err := m.lookupLocked("lock", name)
	if err != nil {
		return nil, err
	}
	if !e.exists() {
		return nil, pathError("lock", name, syscall.ENOENT)
	}
	return m.lockLocked(e.node(), name, shared)
}

func (m *Mem) lockLocked(node any, name string, shared bool) (io.Closer, error) {
	holders := m.mu.locks[node]
	if holders < 0 || holders > 0 && !shared {
		return nil, lockedBy(name, strconv.Itoa(os.Getpid()))
	}
	change := -1
	if shared {
		change = 1
	}
	m.mu.locks[node] += change
	return &memLock{fs: m, node: node, change: change}, nil
}

type memLock struct {
	fs     *Mem
	node   any
	change int
	once   sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		if l.fs.mu.locks[l.node] -= l.change; l.fs.mu.locks[l.node] == 0 {
			delete(l.fs.mu.locks, l.node)
		}
	})
	return nil
}

// editLocked changes current entries and notes the change as unsynced.
func (m *Mem) editLocked(edits ...edit) {
	m.mu.seq++
	m.mu.pending = append(m.mu.pending, dirOp{seq: m.mu.seq, edits: edits})
	for _, e := range edits {
		e.dir.current = e.dir.current.with(e.entry)
	}
}

// unlinkLocked notes that a file, or none, has lost its name.
func (m *Mem) unlinkLocked(file *fileNode) {
	if file == nil {
		return
	}
	file.linked = false
	if !file.alive() {
		m.mu.used -= file.space()
	}
}

// lookupLocked returns the directory that holds, or would hold, name, and the
// current entry there; if there is none, an entry that has only a name.
func (m *Mem) lookupLocked(op, name string) (*dirNode, entry, error) {
	rest := clean(name)
	if rest == "" {
		return nil, entry{dir: m.mu.root}, nil
	}
	for dir := m.mu.root; ; {
		part, under, more := strings.Cut(rest, "/")
		e := dir.current.get(part)
		switch {
		case !more:
			e.name = part
			return dir, e, nil
		case e.file != nil:
			return nil, entry{}, pathError(op, name, syscall.ENOTDIR)
		case e.dir == nil:
			return nil, entry{}, pathError(op, name, syscall.ENOENT)
		}
		dir, rest = e.dir, under
	}
}

func (m *Mem) dirLocked(op, name string) (*dirNode, error) {
	_, e, err := m.lookupLocked(op, name)
	switch {
	case err != nil:
		return nil, err
	case e.file != nil:
		return nil, pathError(op, name, syscall.ENOTDIR)
	case e.dir == nil:
		return nil, pathError(op, name, syscall.ENOENT)
	}
	return e.dir, nil
}

// clean returns a name without a slash before or after it; of the root, "".
func clean(name string) string {
	if name != "" && name[0] != '/' && name[0] != '.' && name[len(name)-1] != '/' &&
		!strings.Contains(name, "//") && !strings.Contains(name, "/.") {
		return name // as nearly all are
	}
	return path.Clean("/" + name)[1:]
}

func split(name string) []string {
	if name = clean(name); name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// base returns the last part of a name; of the root, "/".
func base(name string) string {
	name = clean(name)
	return cmp.Or(name[strings.LastIndexByte(name, '/')+1:], "/")
}

func pathError(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// info describes what has, or had, this entry.
func (e entry) info(name string) memInfo {
	info := memInfo{name: name, dir: e.dir != nil, node: e.node()}
	if e.file != nil {
		info.size, info.mode = e.file.current.size, e.file.mode
	}
	return info
}

// node is what stays the same when the name changes.
func (e entry) node() any {
	if e.dir != nil {
		return e.dir
	}
	return e.file
}

// memInfo is what Stat tells of a file or directory of a Mem.
type memInfo struct {
	name string
	size int64
	mode os.FileMode
	dir  bool
	node any // *fileNode or *dirNode
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return i.node } // see SameFile

func (i memInfo) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o700
	}
	return i.mode
}
