package repair

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kvd-db/kvd/internal/vfs"
)

// sectorBytes is the unit in which unreadable parts of a file are left out.
const sectorBytes = 4 << 10

// source is the file system of the damaged store. It refuses to write. Parts of a file that
// the disk cannot read are zeros, which no checksum accepts.
type source struct {
	vfs.FS

	mu         sync.Mutex
	unreadable map[string][]Damage // by name
}

var errSource = errors.New("a repair does not change the damaged store")

func refuse(op, name string) error { return fmt.Errorf("%s %s: %w", op, name, errSource) }

// Create, and what else would write, is refused.
func (s *source) Create(name string) (vfs.File, error)        { return nil, refuse("create", name) }
func (s *source) OpenReadWrite(name string) (vfs.File, error) { return nil, refuse("write to", name) }
func (s *source) Remove(name string) error                    { return refuse("remove", name) }
func (s *source) Rename(name, _ string) error                 { return refuse("rename", name) }
func (s *source) MkdirAll(name string) error                  { return refuse("create", name) }
func (s *source) SyncDir(name string) error                   { return refuse("sync", name) }
func (s *source) Lock(name string) (io.Closer, error)         { return nil, refuse("create", name) }

func (s *source) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &sourceFile{File: f, of: s}, nil
}

// damage returns the parts of a file that could not be read.
func (s *source) damage(name string) []Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unreadable[name]
}

type sourceFile struct {
	vfs.File
	of *source
}

// ReadAt is the ReadAt of the file, with zeros in place of what the disk cannot read.
func (f *sourceFile) ReadAt(p []byte, off int64) (n int, err error) {
	n, err = f.File.ReadAt(p, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	size, sizeErr := f.File.Size()
	if sizeErr != nil {
		return n, err
	}
	for n = 0; n < len(p) && off+int64(n) < size; {
		at := off + int64(n)
		k := min(len(p)-n, int(sectorBytes-at%sectorBytes), int(size-at))
		if got, err := f.File.ReadAt(p[n:n+k], at); got < k {
			clear(p[n : n+k])
			f.of.unread(f.Name(), at, int64(k), err)
		}
		n += k
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (s *source) unread(name string, off, bytes int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable == nil {
		s.unreadable = map[string][]Damage{}
	}
	for _, d := range s.unreadable[name] {
		if d.Offset <= off && off+bytes <= d.Offset+d.Bytes {
			return
		}
	}
	all := s.unreadable[name]
	if n := len(all); n > 0 && all[n-1].Offset+all[n-1].Bytes == off {
		all[n-1].Bytes += bytes
		return
	}
	s.unreadable[name] = append(all, Damage{off, bytes, fmt.Sprintf("the disk cannot read it: %v", err)})
}
