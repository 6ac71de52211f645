package wal

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// syncFS calls sync instead of File.Sync for every file created or opened for writing.
// Unlike a real file, one whose Sync failed may be synced again.
type syncFS struct {
	vfs.FS
	sync func(f vfs.File) error
}

type syncFile struct {
	vfs.File
	sync func(f vfs.File) error
}

func (f *syncFile) Sync() error { return f.sync(f.File) }

func (s *syncFS) Create(name string) (vfs.File, error) { return s.wrap(s.FS.Create(name)) }

func (s *syncFS) OpenReadWrite(name string) (vfs.File, error) {
	return s.wrap(s.FS.OpenReadWrite(name))
}

func (s *syncFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &syncFile{f, s.sync}, nil
}

// gate lets syncs pass while it is open, and blocks them while it is shut.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil: open
	waiting chan struct{} // one value for each blocked sync
}

func newGate() *gate { return &gate{waiting: make(chan struct{}, 100)} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) sync(f vfs.File) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		g.waiting <- struct{}{}
		<-shut
	}
	return f.Sync()
}

// contents returns the bytes of every segment by number.
func contents(t testing.TB, fsys vfs.FS) map[uint64][]byte {
	t.Helper()
	nums, err := listSegments(fsys, testDir)
	require.NoError(t, err)
	files := map[uint64][]byte{}
	for _, num := range nums {
		r, _, err := openSegment(fsys, segmentName(testDir, num), logfile.ID{})
		require.NotNil(t, r, "%v", err)
		b, err := r.bytes(0, r.size)
		require.NoError(t, err)
		files[num] = append([]byte(nil), b...)
		require.NoError(t, r.close())
	}
	return files
}

// diskOf returns a disk with these segments, all of it synced.
func diskOf(t testing.TB, files map[uint64][]byte) *vfs.Mem {
	t.Helper()
	disk := newDisk(t)
	require.NoError(t, disk.MkdirAll(testDir))
	for num, b := range files {
		require.NoError(t, vfs.WriteAtomic(disk, segmentName(testDir, num), b))
	}
	require.NoError(t, disk.SyncDir("data"))
	return disk
}
