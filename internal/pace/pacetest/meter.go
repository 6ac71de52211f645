// Package pacetest measures from outside how fast files are read.
package pacetest

import (
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Meter is a file system that notes when its files are read. In a bubble of synctest these are
// exact times. Safe for concurrent use.
type Meter struct {
	vfs.FS

	mu    sync.Mutex
	reads []read
}

type read struct {
	at    time.Time
	bytes int64
}

// Reset forgets all reads.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = nil
}

// Total returns the bytes that were read, and the time from the first to the last of them.
func (m *Meter) Total() (bytes int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.reads {
		bytes += r.bytes
	}
	if len(m.reads) > 0 {
		took = m.reads[len(m.reads)-1].at.Sub(m.reads[0].at)
	}
	return bytes, took
}

// Most returns the most bytes that were read within any time of a length.
func (m *Meter) Most(within time.Duration) (most int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum, first := int64(0), 0
	for _, r := range m.reads {
		for sum += r.bytes; r.at.Sub(m.reads[first].at) > within; first++ {
			sum -= m.reads[first].bytes
		}
		most = max(most, sum)
	}
	return most
}

// Create implements vfs.FS.
func (m *Meter) Create(name string) (vfs.File, error) { return m.meter(m.FS.Create(name)) }

// Open implements vfs.FS.
func (m *Meter) Open(name string) (vfs.File, error) { return m.meter(m.FS.Open(name)) }

// OpenReadWrite implements vfs.FS.
func (m *Meter) OpenReadWrite(name string) (vfs.File, error) {
	return m.meter(m.FS.OpenReadWrite(name))
}

func (m *Meter) meter(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &file{File: f, of: m}, nil
}

type file struct {
	vfs.File
	of *Meter
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.reads = append(f.of.reads, read{time.Now(), int64(n)})
	return n, err
}
