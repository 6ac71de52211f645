package vfs

import (
	"os"
	"slices"
	"strings"
)

// fileNode is a file of a Mem, by whatever names it has.
type fileNode struct {
	current content  // what reads see
	synced  content  // what the disk surely holds
	pending []dataOp // changes since the last Sync, oldest first
	// lossy: a failed sync dropped changes, so that current is no longer synced
	// plus pending, and never will be.
	lossy bool

	// reserved is up to where space is held, if that is more than the length.
	reserved int64

	mode       os.FileMode // its permissions
	attributes []Attribute // never changed

	linked bool // has a name among the current entries
	opens  int  // open handles
}

// alive reports whether the file still takes space.
func (f *fileNode) alive() bool { return f.linked || f.opens > 0 }

// space is what the file takes of the capacity.
func (f *fileNode) space() int64 { return max(f.current.size, f.reserved) }

// sync makes every change since the last sync durable.
func (f *fileNode) sync() {
	if f.lossy {
		for i := range f.pending {
			f.pending[i].apply(&f.synced)
		}
	} else {
		f.synced = f.current.snapshot()
	}
	clear(f.pending) // so that it keeps no data
	f.pending = f.pending[:0]
}

// dropPending makes every change since the last sync one that the disk will
// never see, while reads go on to show it.
func (f *fileNode) dropPending() {
	if len(f.pending) > 0 {
		f.pending, f.lossy = nil, true
	}
}

// dataOp is one write or truncate of a file.
type dataOp struct {
	seq      uint64 // order among all operations of the Mem
	off      int64  // of a truncate: the new length
	n        int64
	data     []byte // nil: n zeros
	truncate bool
}

func (op *dataOp) apply(c *content) {
	switch {
	case op.truncate:
		c.truncate(op.off)
	case op.data == nil:
		c.zero(op.off, op.n)
	default:
		c.writeAt(op.data, op.off)
	}
}

// touches reports whether the operation may change a byte of [off, off+n).
func (op *dataOp) touches(off, n int64) bool {
	if op.truncate {
		return op.off < off+n
	}
	return op.off < off+n && off < op.off+op.n
}

// dirNode is a directory of a Mem.
type dirNode struct {
	current entries // what lookups see
	synced  entries // what the disk surely holds
	// lossy: a failed sync dropped changes, so that current is no longer synced plus
	// the unsynced changes, and never will be.
	lossy bool
}

// entry is a name in a directory with what it names: a file, a directory, or,
// in an edit, neither.
type entry struct {
	name string
	file *fileNode
	dir  *dirNode
}

func (e entry) exists() bool { return e.file != nil || e.dir != nil }

// entries is the sorted, immutable content of a directory.
type entries []entry

func (es entries) find(name string) (int, bool) {
	return slices.BinarySearchFunc(es, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
}

// get returns the entry of that name; it does not exist if there is none.
func (es entries) get(name string) entry {
	if i, found := es.find(name); found {
		return es[i]
	}
	return entry{}
}

// with returns a copy in which e has taken the place of what had its name. An e
// that names nothing takes the name away.
func (es entries) with(e entry) entries {
	i, found := es.find(e.name)
	end := i
	if found {
		end++
	}
	result := make(entries, 0, len(es)+1)
	result = append(result, es[:i]...)
	if e.exists() {
		result = append(result, e)
	}
	return append(result, es[end:]...)
}

// dirOp is one unsynced change of directory entries: one edit for a create or a
// remove, two for a rename, which a power cut keeps or loses together.
type dirOp struct {
	seq   uint64
	edits []edit
}

type edit struct {
	dir   *dirNode
	entry entry
}

func (op *dirOp) touches(dirs []*dirNode) bool {
	return slices.ContainsFunc(op.edits, func(e edit) bool { return slices.Contains(dirs, e.dir) })
}
