package valuefile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// maxOpen is how many files a Set keeps open besides those being read. Guessed: with 16
// partitions these are 4,096 descriptors, and opening a file again takes some 10 us.
const maxOpen = 256

// Set is the value files of one partition. It opens a file when one of its values is
// read and keeps it open for the next read, within a bound. Safe for concurrent use.
//
// The caller keeps a file on disk for as long as it may be read.
type Set struct {
	open func(kv.FileNum) (*Reader, error)
	slow atomic.Bool // recent reads waited for the disk; only a hint

	mu struct {
		sync.Mutex
		files  map[kv.FileNum]*openFile
		uses   uint64
		closed bool
	}
}

// openFile is a reader with its users; guarded by Set.mu except for once, reader and err.
type openFile struct {
	users   int
	lastUse uint64
	dropped bool // the last user closes it

	once   sync.Once
	reader *Reader
	err    error
}

// NewSet returns a set that opens its files with open.
func NewSet(open func(kv.FileNum) (*Reader, error)) *Set {
	s := &Set{open: open}
	s.mu.files = make(map[kv.FileNum]*openFile)
	s.slow.Store(true)
	return s
}

// acquire returns the reader of a file. If there is no error, the caller calls release.
func (s *Set) acquire(num kv.FileNum) (*openFile, error) {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("value file %06d: %w", num, kv.ErrClosed)
	}
	f := s.mu.files[num]
	var idle *openFile
	if f == nil {
		idle = s.evictLocked()
		f = &openFile{}
		s.mu.files[num] = f
	}
	f.users++
	s.mu.uses++
	f.lastUse = s.mu.uses
	s.mu.Unlock()

	err := idle.close()
	f.once.Do(func() { f.reader, f.err = s.open(num) })
	if f.err != nil {
		s.mu.Lock()
		if s.mu.files[num] == f {
			delete(s.mu.files, num) // the next call tries again
		}
		s.mu.Unlock()
		return nil, f.err
	}
	if err != nil {
		return nil, errors.Join(err, s.release(f))
	}
	return f, nil
}

func (s *Set) release(f *openFile) error {
	s.mu.Lock()
	f.users--
	last := f.users == 0 && f.dropped
	s.mu.Unlock()
	if !last {
		return nil
	}
	return f.close()
}

// evictLocked removes the least recently used file without users, if there are too many
// files, and returns it for the caller to close.
func (s *Set) evictLocked() *openFile {
	if len(s.mu.files) < maxOpen {
		return nil
	}
	var oldest kv.FileNum
	for num, f := range s.mu.files {
		if f.users == 0 && (oldest == 0 || f.lastUse < s.mu.files[oldest].lastUse) {
			oldest = num
		}
	}
	f := s.mu.files[oldest]
	delete(s.mu.files, oldest)
	return f
}

func (f *openFile) close() error {
	if f == nil || f.reader == nil {
		return nil
	}
	return f.reader.Close()
}

// Read returns the value that p points to, written over dst as by Reader.Read.
//
// Errors: those of opening the file and of Reader.Read.
func (s *Set) Read(p kv.ValuePointer, dst []byte) ([]byte, error) {
	f, err := s.acquire(p.File)
	if err != nil {
		return nil, err
	}
	value, err := f.reader.Read(p, dst)
	if releaseErr := s.release(f); err == nil && releaseErr != nil {
		return nil, releaseErr
	}
	return value, err
}

// Drop closes a file that will not be read again, after its last read.
func (s *Set) Drop(num kv.FileNum) error {
	s.mu.Lock()
	f := s.mu.files[num]
	delete(s.mu.files, num)
	if f != nil && f.users > 0 {
		f.dropped = true
		f = nil
	}
	s.mu.Unlock()
	return f.close()
}

// Close closes all files; a file that is being read is closed after its last read.
// A later read fails with kv.ErrClosed. Close is idempotent.
func (s *Set) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	var nums []kv.FileNum
	for num := range s.mu.files {
		nums = append(nums, num)
	}
	s.mu.Unlock()
	var errs []error
	for _, num := range nums {
		errs = append(errs, s.Drop(num))
	}
	return errors.Join(errs...)
}
