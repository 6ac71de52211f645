package vfs

import (
	"bytes"
	"slices"
)

const (
	pageBytes  = 1 << 10 // a log that is synced after each write copies a page for each
	chunkPages = 64      // bits of chunk.owned
	chunkBytes = pageBytes * chunkPages
)

type page [pageBytes]byte

var zeroPage page

// chunk is a run of pages; a nil page is all zeros.
type chunk struct {
	owner *owner
	owned uint64 // bit i: pages[i] belongs to owner too and may be changed
	pages [chunkPages]*page
}

// owner marks the parts of a content that nothing else refers to.
type owner struct{ _ byte } // not empty: two owners must have two addresses

// content is the bytes of a file as a tree of shared pages, so that a snapshot
// costs nothing and a write copies only the pages it touches. Zeros take no
// memory.
//
// I1. A part whose owner is not the content's own owner is never changed.
// I2. Bytes at and after size are zeros.
type content struct {
	size   int64
	chunks []*chunk // nil is all zeros
	owner  *owner   // nil: chunks is shared
}

// snapshot returns a content with the same bytes. From here on both copy what
// they change.
func (c *content) snapshot() content {
	c.owner = nil
	return *c
}

// readAt copies bytes at off to p and returns how many there were.
func (c *content) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for done := 0; done < len(p); {
		at := off + int64(done)
		n := min(len(p)-done, pageBytes-int(at%pageBytes))
		if pg := c.page(at); pg != nil {
			copy(p[done:done+n], pg[at%pageBytes:])
		} else {
			clear(p[done : done+n])
		}
		done += n
	}
	return len(p)
}

func (c *content) page(off int64) *page {
	if i := off / chunkBytes; i < int64(len(c.chunks)) && c.chunks[i] != nil {
		return c.chunks[i].pages[off%chunkBytes/pageBytes]
	}
	return nil
}

// writeAt stores p at off. The content grows as needed.
func (c *content) writeAt(p []byte, off int64) {
	c.size = max(c.size, off+int64(len(p)))
	for len(p) > 0 {
		n := min(len(p), pageBytes-int(off%pageBytes))
		c.writePage(p[:n], off)
		p, off = p[n:], off+int64(n)
	}
}

// writePage stores p, which lies in one page.
func (c *content) writePage(p []byte, off int64) {
	zeros := isZero(p)
	old := c.page(off)
	if zeros && old == nil {
		return
	}
	ch := c.ownChunk(off / chunkBytes)
	i := off % chunkBytes / pageBytes
	if len(p) == pageBytes && zeros {
		ch.pages[i] = nil
		return
	}
	if ch.owned&(1<<i) == 0 || old == nil {
		ch.pages[i] = new(page)
		if old != nil {
			*ch.pages[i] = *old
		}
		ch.owned |= 1 << i
	}
	copy(ch.pages[i][off%pageBytes:], p)
}

// ownChunk returns chunk i, made and owned as needed.
func (c *content) ownChunk(i int64) *chunk {
	c.own()
	if grow := int(i) + 1 - len(c.chunks); grow > 0 {
		c.chunks = append(c.chunks, make([]*chunk, grow)...)
	}
	switch ch := c.chunks[i]; {
	case ch == nil:
		c.chunks[i] = &chunk{owner: c.owner}
	case ch.owner != c.owner:
		c.chunks[i] = &chunk{owner: c.owner, pages: ch.pages}
	}
	return c.chunks[i]
}

func (c *content) own() {
	if c.owner == nil {
		c.owner = new(owner)
		c.chunks = slices.Clone(c.chunks)
	}
}

// zero stores n zeros at off. The content grows as needed.
func (c *content) zero(off, n int64) {
	c.size = max(c.size, off+n)
	end := min(off+n, int64(len(c.chunks))*chunkBytes) // all bytes after it are zero
	for off < end {
		if off%chunkBytes == 0 && end-off >= chunkBytes {
			if i := off / chunkBytes; c.chunks[i] != nil {
				c.own()
				c.chunks[i] = nil
			}
			off += chunkBytes
			continue
		}
		k := min(end-off, pageBytes-off%pageBytes)
		c.writePage(zeroPage[:k], off)
		off += k
	}
}

// truncate sets the length.
func (c *content) truncate(size int64) {
	if size < c.size {
		c.zero(size, c.size-size) // I2
		if keep := (size + chunkBytes - 1) / chunkBytes; keep < int64(len(c.chunks)) {
			c.chunks = c.chunks[:keep:keep]
		}
	}
	c.size = size
}

// isZero reports whether p, at most a page, is all zeros.
func isZero(p []byte) bool { return bytes.Equal(p, zeroPage[:len(p)]) }
