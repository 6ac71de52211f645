package engine

import (
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/vfs"
)

// slowWrites is a file system on which each write of a value file takes a time, and that counts
// how many files are written to at the same time.
type slowWrites struct {
	vfs.FS
	each   time.Duration
	writes atomic.Int64

	mu         sync.Mutex
	open, most int
	created    func() // is called for each value file; may be nil
}

func (s *slowWrites) onCreate(created func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = created
}

func (s *slowWrites) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	if err != nil || path.Ext(name) != ".val" {
		return f, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.most = max(s.most, s.open)
	if s.created != nil {
		s.created()
	}
	return &slowlyWritten{File: f, of: s}, nil
}

type slowlyWritten struct {
	vfs.File
	of *slowWrites
}

func (f *slowlyWritten) WriteAt(p []byte, off int64) (int, error) {
	f.of.writes.Add(1)
	time.Sleep(f.of.each)
	return f.File.WriteAt(p, off)
}

func (f *slowlyWritten) Close() error {
	f.of.mu.Lock()
	f.of.open--
	f.of.mu.Unlock()
	return f.File.Close()
}

// flushes are the times that the flushes of a store took. Safe for concurrent use.
type flushes struct {
	mu   sync.Mutex
	took []time.Duration
}

func (f *flushes) add(e event.Flush) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, e.Took)
}

func (f *flushes) all() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Duration(nil), f.took...)
}

// loaded returns a store of four partitions with 2 MiB of values in memtables, whose writes of value
// files take a time each.
func loaded(t *testing.T, each time.Duration) (*Engine, *slowWrites, *flushes) {
	disk, seen := &slowWrites{FS: vfs.NewMem(), each: each}, &flushes{}
	e, err := Open("d", Options{FS: disk, Partitions: 4, MemtableBytes: 8 << 20, Events: &event.Listener{Flush: seen.add}})
	require.NoError(t, err)
	for i := range 2000 {
		put(t, e, fmt.Sprintf("key-%04d", i), string(make([]byte, 1000)), spaceWrites)
	}
	return e, disk, seen
}

// What is flushed because of its age, no writer waits for: it leaves the processors and the disk to
// readers for three quarters of the time, and one partition is flushed after the other.
func TestOldMemtablesAreFlushedGently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, disk, seen := loaded(t, 10*time.Millisecond)
		time.Sleep(2 * rest)
		var took time.Duration
		for _, one := range seen.all() {
			took += one
		}
		require.Len(t, seen.all(), 4)
		worked := time.Duration(disk.writes.Load()) * disk.each
		// The last write of a file is followed by no rest.
		assert.GreaterOrEqual(t, took, (1+restTimes)*(worked-4*disk.each))
		assert.LessOrEqual(t, took, (1+restTimes)*worked)
		assert.Equal(t, 1, disk.most, "value files written to at the same time")
		require.NoError(t, e.Close())
	})
}

// Nothing rests while a caller waits for it or writes. (That a rest under way then ends is tested in
// package pace: the fake clock stands while a caller waits for the lock of a flush.)
func TestWhatIsWaitedForDoesNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, disk, _ := loaded(t, 0)
		require.Zero(t, e.rests(), "it was written to")
		time.Sleep(2 * rest)
		require.Equal(t, restTimes, e.rests())

		for _, wait := range []func() error{
			func() error { return e.Flush(t.Context()) },
			func() error { return e.CompactAll(t.Context()) },
		} {
			put(t, e, "key-0001", string(make([]byte, 1000)), spaceWrites)
			during := make(chan int, 100) // the rests when a value file was created
			disk.onCreate(func() { during <- e.rests() })
			require.NoError(t, wait())
			require.Zero(t, <-during)
			disk.onCreate(nil)
			require.Equal(t, restTimes, e.rests())
		}

		for i := range 2 * restBytes / 1000 {
			put(t, e, fmt.Sprintf("key-%04d", i), string(make([]byte, 1000)), spaceWrites)
		}
		time.Sleep(housekeepingEvery)
		synctest.Wait()
		require.Zero(t, e.rests())
		require.NoError(t, e.Close())
	})
}
