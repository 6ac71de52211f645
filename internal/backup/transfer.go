package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/vfs"
)

// copyBytes is how much is copied at a time.
const copyBytes = 256 << 10

// Options of everything that copies or reads files.
type Options struct {
	// Rate bounds the bytes that are copied a second; 0: no bound. See pace.Bucket.
	Rate int64
	// Digest is what the manifest of a new backup says; see Manifest.
	Digest string
	// Progress is called with the bytes done since the last call, and all bytes that there
	// are to do. May be nil.
	Progress func(bytes, total int64)
}

// transfer counts and paces what one command copies.
type transfer struct {
	Options
	total int64
	pace  *pace.Bucket
	buf   []byte
}

func newTransfer(o Options, total int64) *transfer {
	return &transfer{Options: o, total: total, pace: pace.New(o.Rate), buf: make([]byte, copyBytes)}
}

// did counts bytes that need no copying.
func (t *transfer) did(bytes int64) {
	if t.Progress != nil {
		t.Progress(bytes, t.total)
	}
}

// copy copies the content of a file to w and compares its length and checksum. what names
// the place that the content comes from.
func (t *transfer) copy(ctx context.Context, w io.Writer, r io.Reader, what string, size int64, sum uint64) error {
	done, got, err := t.move(ctx, w, r, size)
	var unread *readError
	switch {
	case done > size:
		return kv.Corruptf(what, size, "it has more than its %d bytes", size)
	case errors.As(err, &unread):
		return fmt.Errorf("read %s at offset %d: %w", what, done, unread.err)
	case err != nil:
		return err
	case done < size:
		return kv.Corruptf(what, done, "it ends before its %d bytes", size)
	case got != sum:
		return kv.Corruptf(what, -1, "it has the checksum %016x, and was written with %016x", got, sum)
	}
	return nil
}

// move copies r to w to its end, at the rate of the transfer, and returns how many bytes there
// were and their checksum. It ends early, and writes no more, if there are more than size bytes.
//
// Errors: a *readError of r; those of w and of ctx.
func (t *transfer) move(ctx context.Context, w io.Writer, r io.Reader, size int64) (done int64, sum uint64, err error) {
	h := NewSum()
	for {
		n, readErr := r.Read(t.buf)
		if n > 0 {
			if done += int64(n); done > size {
				return done, 0, nil
			}
			_, _ = h.Write(t.buf[:n]) // a hash does not fail
			if _, err := w.Write(t.buf[:n]); err != nil {
				return done, 0, err
			}
			t.did(int64(n))
			if err := t.pace.Take(ctx, int64(n)); err != nil {
				return done, 0, err
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return done, h.Sum64(), nil
		case readErr != nil:
			return done, 0, &readError{readErr}
		}
	}
}

// readError tells an error of reading from one of writing.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (e *readError) Unwrap() error { return e.err }

// copyToFile makes a new file with the content, synced. After an error there is none, if it
// could be removed.
func (t *transfer) copyToFile(ctx context.Context, fsys vfs.FS, name string, r io.Reader, what string, size int64, sum uint64) error {
	if err := vfs.RemoveIfThere(fsys, name); err != nil {
		return err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	err = t.copy(ctx, &fileWriter{f: f}, r, what, size, sum)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(name))
	}
	return nil
}

// fileWriter writes a file from its beginning.
type fileWriter struct {
	f         vfs.File
	off       int64
	writeback vfs.Writeback
}

// Write implements io.Writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	if _, err := w.f.WriteAt(p, w.off); err != nil {
		return 0, err // it names the file
	}
	w.off += int64(len(p))
	w.writeback.Written(w.f, w.off)
	return len(p), nil
}

// verifyFile compares the length and the checksum of a file.
func (t *transfer) verifyFile(ctx context.Context, fsys vfs.FS, name string, size int64, sum uint64) error {
	return t.readFile(ctx, fsys, name, io.Discard, size, sum)
}

// readFile copies a file to w, as copy does.
func (t *transfer) readFile(ctx context.Context, fsys vfs.FS, name string, w io.Writer, size int64, sum uint64) (err error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return kv.Corruptf(name, -1, "the file is missing")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return t.copy(ctx, w, io.NewSectionReader(f, 0, size+1), name, size, sum)
}
