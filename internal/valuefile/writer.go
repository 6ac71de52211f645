package valuefile

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// writeBytes is how much is written to the file at once, as in package sstable.
const writeBytes = 256 << 10

// Writer makes one value file. It is used by one goroutine.
//
// It holds one write buffer. It has no Close: the caller owns the file, and closes it
// after Finish, or closes and removes it instead.
type Writer struct {
	file      vfs.File
	identity  identity
	footer    footer
	pending   []byte // not yet written
	written   int64  // bytes written to the file
	writeback vfs.Writeback
	err       error // sticky
}

// NewWriter returns a writer of an empty file. It does no I/O.
func NewWriter(f vfs.File, id kv.FileID) *Writer {
	return &Writer{file: f, identity: newIdentity(id), footer: footer{id: id}}
}

// Add appends a copy of a value and returns its pointer. The value has at least
// one byte and at most kv.MaxValueBytes.
//
// Errors: a value out of bounds, or a write that failed. After any error the writer
// refuses everything.
func (w *Writer) Add(value []byte) (kv.ValuePointer, error) {
	if w.err == nil && (len(value) == 0 || len(value) > kv.MaxValueBytes) {
		w.err = fmt.Errorf("add to value file %s: %w: value of %d bytes", w.file.Name(), kv.ErrInvalidArgument, len(value))
	}
	if w.err != nil {
		return kv.ValuePointer{}, w.err
	}
	p := kv.ValuePointer{File: w.footer.id.Num, Offset: uint64(w.Size()), Length: uint32(len(value))}
	w.pending = w.identity.appendRecord(w.pending, p.Offset, value)
	w.footer.values++
	w.footer.bytes += uint64(len(value))
	if len(w.pending) >= writeBytes {
		w.err = w.flush()
	}
	return p, w.err
}

// flush writes the pending bytes to the file.
func (w *Writer) flush() error {
	n := int64(len(w.pending))
	if _, err := w.file.WriteAt(w.pending, w.written); err != nil {
		return fmt.Errorf("write value file %s at offset %d: %w", w.file.Name(), w.written, err)
	}
	w.written += n
	w.pending = w.pending[:0]
	if n > 8*writeBytes {
		w.pending = nil // a large value made it grow
	}
	w.writeback.Written(w.file, w.written)
	return nil
}

// Size returns the bytes of all records so far.
func (w *Writer) Size() int64 { return w.written + int64(len(w.pending)) }

// Finish completes the file, makes its bytes durable, and returns its description. The
// caller makes the directory entry durable. Finish fails if the file has no value.
//
// The file stays open, and may be passed to Open.
func (w *Writer) Finish() (kv.ValueFileMeta, error) {
	if w.err != nil {
		return kv.ValueFileMeta{}, w.err
	}
	err := w.finish()
	w.err = fmt.Errorf("value file %s is finished: %w", w.file.Name(), kv.ErrClosed)
	if err != nil {
		w.err = err
		return kv.ValueFileMeta{}, err
	}
	return w.footer.meta(), nil
}

func (w *Writer) finish() error {
	if w.footer.values == 0 {
		return fmt.Errorf("%w: value file %s without a value", kv.ErrInvalidArgument, w.file.Name())
	}
	w.footer.records = uint64(w.Size())
	w.pending = w.footer.appendTo(w.pending)
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync value file %s: %w", w.file.Name(), err)
	}
	return nil
}
