package valuefile

import (
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
)

// sweepBytes is how much of a file a Sweep reads at once.
const sweepBytes = 128 << 10

// Sweep reads values of several files, each about in the order of its file, for a
// merge that rewrites values. It is used by one goroutine.
//
// It holds a buffer of 128 KiB for each file.
type Sweep struct {
	set   *Set
	files map[kv.FileNum]*sweptFile
}

type sweptFile struct {
	open  *openFile
	start uint64 // of buf in the file
	buf   []byte
}

// NewSweep returns a sweep. The caller closes it.
func (s *Set) NewSweep() *Sweep { return &Sweep{set: s, files: make(map[kv.FileNum]*sweptFile)} }

// Read returns the value that p points to, borrowed until the next call.
//
// Errors: those of Set.Read.
func (w *Sweep) Read(p kv.ValuePointer) ([]byte, error) {
	f := w.files[p.File]
	if f == nil {
		open, err := w.set.acquire(p.File)
		if err != nil {
			return nil, err
		}
		f = &sweptFile{open: open}
		w.files[p.File] = f
	}
	r := f.open.reader
	if err := r.check(p); err != nil {
		return nil, err
	}
	if p.Offset < f.start || end(p) > f.start+uint64(len(f.buf)) {
		n := max(end(p)-p.Offset, min(sweepBytes, r.footer.records-p.Offset))
		if uint64(cap(f.buf)) < n {
			f.buf = make([]byte, n)
		}
		f.start, f.buf = p.Offset, f.buf[:n]
		if r.readAt(f.buf, int64(p.Offset)) != nil {
			// The error may concern a later value.
			f.buf = f.buf[:end(p)-p.Offset]
			if err := r.readAt(f.buf, int64(p.Offset)); err != nil {
				f.buf = f.buf[:0]
				return nil, err
			}
		}
	}
	return r.unseal(p, f.buf[p.Offset-f.start+lengthBytes:][:uint64(p.Length)+checksumBytes])
}

// Close releases the files.
func (w *Sweep) Close() error {
	var errs []error
	for num, f := range w.files {
		errs = append(errs, w.set.release(f.open))
		delete(w.files, num)
	}
	return errors.Join(errs...)
}
