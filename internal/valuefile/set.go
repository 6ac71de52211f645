package valuefile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// maxOpen is how many files a Set keeps open beyond those being read. A guess: of 16
// partitions these are 4,096 descriptors, and a file is opened again in some 10 us.
const maxOpen = 256

// Set is the value files of one partition. It opens a file when a value of it is
// asked for and keeps it open for the next, within a bound. Safe for concurrent use.
//
// The caller sees to it that a file exists as long as somebody may ask for it.
type Set struct {
	open func(kv.FileNum) (*Reader, error)
	slow atomic.Bool // reads waited for the disk of late; only a hint

	mu struct {
		sync.Mutex
		files  map[kv.FileNum]*openFile
		uses   uint64
		closed bool
	}
}

// openFile is a reader with its users; guarded by Set.mu but for once.
type openFile struct {
	users   int
	lastUse uint64
	dropped bool // the last user closes it

	once   sync.Once
	reader *Reader
	err    error
}

// NewSet returns a set whose files open opens.
func NewSet(open func(kv.FileNum) (*Reader, error)) *Set {
	s := &Set{open: open}
	s.mu.files = make(map[kv.FileNum]*openFile)
	s.slow.Store(true)
	return s
}

// acquire returns the reader of a file, to be given back by release if there is no
// error.
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
			delete(s.mu.files, num) // the next one tries again
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

// evictLocked takes the file that was not used for longest out, if there are too
// many and it has no users, for the caller to close.
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

// Read returns the value that p points to, written over dst as Reader.Read does it.
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

// Drop closes a file that nobody will ask for any more.
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

// Close closes all files; those that are being read close with their last read.
// What is asked for later fails with kv.ErrClosed. It is idempotent.
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
