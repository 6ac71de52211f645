package vfs

import "sync/atomic"

// ReadCounts counts the reads of files. Safe for concurrent use.
type ReadCounts struct{ calls, bytes atomic.Uint64 }

// Calls returns how many reads have ended, and Bytes how many bytes they returned.
func (c *ReadCounts) Calls() uint64 { return c.calls.Load() }
func (c *ReadCounts) Bytes() uint64 { return c.bytes.Load() }

// CountReads returns fsys, which counts the reads of its files in counts.
func CountReads(fsys FS, counts *ReadCounts) FS { return &countingFS{fsys, counts} }

type countingFS struct {
	FS
	counts *ReadCounts
}

func (c *countingFS) Create(name string) (File, error) { return c.count(c.FS.Create(name)) }

func (c *countingFS) Open(name string) (File, error) { return c.count(c.FS.Open(name)) }

func (c *countingFS) OpenReadWrite(name string) (File, error) {
	return c.count(c.FS.OpenReadWrite(name))
}

func (c *countingFS) count(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &countingFile{f, c.counts}, nil
}

type countingFile struct {
	File
	counts *ReadCounts
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.counts.calls.Add(1)
	f.counts.bytes.Add(uint64(n))
	return n, err
}
