package vfs

import (
	"bytes"
	"slices"
)

// SyncedBytes reports whether a power cut now, of any policy, would leave bytes
// [off, off+n) of the file as reads show them. That needs the bytes and the
// length synced, no unsynced operation that may change them, and every entry on
// the way to the file synced.
func (m *Mem) SyncedBytes(name string, off, n int64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	file := m.syncedFileLocked(name)
	if file == nil || file.synced.size < off+n {
		return false
	}
	for i := range file.pending {
		if file.pending[i].touches(off, n) {
			return false
		}
	}
	return !file.lossy || equalRange(&file.current, &file.synced, off, n)
}

// syncedFileLocked returns the file of that name if no power cut could give
// the name to another file or to none.
func (m *Mem) syncedFileLocked(name string) *fileNode {
	at := entry{dir: m.mu.root}
	for _, part := range split(name) {
		if at.dir == nil || m.unsyncedLocked(at.dir, part) {
			return nil
		}
		synced := at.dir.synced.get(part)
		if synced.node() != at.dir.current.get(part).node() { // a failed sync has dropped a change
			return nil
		}
		at = synced
	}
	return at.file
}

// unsyncedLocked reports whether an unsynced operation changes the entry.
func (m *Mem) unsyncedLocked(dir *dirNode, name string) bool {
	return slices.ContainsFunc(m.mu.pending, func(op dirOp) bool {
		return slices.ContainsFunc(op.edits, func(e edit) bool { return e.dir == dir && e.entry.name == name })
	})
}

// equalRange reports whether a and b hold the same bytes in [off, off+n).
func equalRange(a, b *content, off, n int64) bool {
	var bufA, bufB page
	for n > 0 {
		k := min(n, pageBytes)
		gotA, gotB := a.readAt(bufA[:k], off), b.readAt(bufB[:k], off)
		if gotA != gotB || !bytes.Equal(bufA[:gotA], bufB[:gotB]) {
			return false
		}
		off, n = off+k, n-k
	}
	return true
}
