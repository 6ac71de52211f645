package vfs

import "slices"

// KillImage returns the file system as kill -9 of the process leaves it: all
// that was written is there to be read, the locks are free, and what was not
// synced still is not. A power cut after a restart can therefore take back what
// the new process has read (Rebello et al., ATC 2020, section 4).
//
// The image is independent of m and has no hook.
func (m *Mem) KillImage() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &copier{files: map[*fileNode]*fileNode{}, dirs: map[*dirNode]*dirNode{}}
	image := NewMem()
	image.mu.root = c.dir(m.mu.root)
	image.mu.seq = m.mu.seq
	image.mu.capacity = m.mu.capacity
	image.mu.pending = make([]dirOp, len(m.mu.pending))
	for i, op := range m.mu.pending {
		edits := make([]edit, len(op.edits))
		for j, e := range op.edits {
			edits[j] = edit{c.dir(e.dir), c.entry(e.entry)}
		}
		image.mu.pending[i] = dirOp{seq: op.seq, edits: edits}
	}
	for _, f := range c.files {
		if f.alive() {
			image.mu.used += f.space()
		}
	}
	return image
}

// copier copies nodes, each once.
type copier struct {
	files map[*fileNode]*fileNode
	dirs  map[*dirNode]*dirNode
}

func (c *copier) dir(d *dirNode) *dirNode {
	if d == nil || c.dirs[d] != nil {
		return c.dirs[d]
	}
	result := &dirNode{lossy: d.lossy}
	c.dirs[d] = result
	result.current = c.entries(d.current)
	result.synced = c.entries(d.synced)
	return result
}

func (c *copier) entries(es entries) entries {
	result := slices.Clone(es)
	for i := range result {
		result[i] = c.entry(result[i])
	}
	return result
}

func (c *copier) entry(e entry) entry {
	return entry{name: e.name, file: c.file(e.file), dir: c.dir(e.dir)}
}

func (c *copier) file(f *fileNode) *fileNode {
	if f == nil || c.files[f] != nil {
		return c.files[f]
	}
	result := &fileNode{
		current: f.current.snapshot(),
		synced:  f.synced.snapshot(),
		pending: slices.Clone(f.pending),
		lossy:   f.lossy,

		reserved: f.reserved,
		mode:     f.mode,

		attributes: f.attributes,
		linked:     f.linked,
	}
	c.files[f] = result
	return result
}
