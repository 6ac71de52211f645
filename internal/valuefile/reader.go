package valuefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Reader reads one value file. Each value is verified each time it is read.
//
// Safe for concurrent use. The caller calls Close after the last read has returned.
type Reader struct {
	file     vfs.File
	identity identity
	footer   footer

	closeOnce sync.Once
	closeErr  error
}

// Open verifies the footer and returns a reader, which owns f unless Open fails.
//
// Errors: a *kv.CorruptionError, also if the size of the file changed or the file
// belongs elsewhere; kv.ErrUnsupportedVersion if a newer kvd wrote it.
// Cost: one small read.
func Open(f vfs.File, id kv.FileID) (*Reader, error) {
	r := &Reader{file: f, identity: newIdentity(id)}
	if err := r.open(id); err != nil {
		return nil, fmt.Errorf("open value file %s: %w", f.Name(), err)
	}
	return r, nil
}

func (r *Reader) open(id kv.FileID) error {
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	tail := make([]byte, min(size, maxFooterBytes))
	if err := r.readAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	footer, reason, err := parseFooter(tail, uint64(size))
	if err != nil {
		return err
	}
	at := max(size-footerBytes, 0)
	if reason != "" {
		return kv.Corruptf(r.file.Name(), at, "%s", reason)
	}
	if footer.id != id {
		return kv.Corruptf(r.file.Name(), at, "it is file %d of partition %d, not file %d of partition %d",
			footer.id.Num, footer.id.Partition, id.Num, id.Partition)
	}
	r.footer = footer
	return nil
}

// Meta describes the contents of the file.
func (r *Reader) Meta() kv.ValueFileMeta { return r.footer.meta() }

// Close closes the file. It is idempotent.
func (r *Reader) Close() error {
	r.closeOnce.Do(func() {
		if err := r.file.Close(); err != nil {
			r.closeErr = fmt.Errorf("close value file %s: %w", r.file.Name(), err)
		}
	})
	return r.closeErr
}

// Read returns the value that p points to, written over dst, whose capacity it uses if
// that is enough for the value and four bytes more.
//
// Errors: a *kv.CorruptionError, or what the read returned.
// Cost: one read and one checksum.
func (r *Reader) Read(p kv.ValuePointer, dst []byte) ([]byte, error) {
	if err := r.check(p); err != nil {
		return nil, err
	}
	n := int(p.Length) + checksumBytes
	if cap(dst) < n {
		dst = make([]byte, n) // slices.Grow would clear what is read into
	}
	dst = dst[:n]
	if err := r.readAt(dst, int64(p.Offset)+lengthBytes); err != nil {
		return nil, err
	}
	return r.unseal(p, dst)
}

// check returns an error if p does not point into the file.
func (r *Reader) check(p kv.ValuePointer) error {
	if p.File != r.footer.id.Num {
		return fmt.Errorf("%w: read of value file %d from %s", kv.ErrInvalidArgument, p.File, r.file.Name())
	}
	if p.Offset > r.footer.records || uint64(p.Length)+recordBytes > r.footer.records-p.Offset {
		return kv.Corruptf(r.file.Name(), int64(p.Offset), "a value of %d bytes would end after the records", p.Length)
	}
	return nil
}

// unseal verifies the record of p, given without its length.
func (r *Reader) unseal(p kv.ValuePointer, sealed []byte) ([]byte, error) {
	value, ok := r.identity.unseal(p.Offset, sealed)
	if !ok {
		return nil, kv.Corruptf(r.file.Name(), int64(p.Offset), "value checksum mismatch")
	}
	return value, nil
}

// readAt fills b from offset. A file that ends early is damage, not io.EOF.
func (r *Reader) readAt(b []byte, offset int64) error {
	n, err := r.file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return kv.Corruptf(r.file.Name(), offset, "file ends early: %d of %d bytes are there", n, len(b))
	}
	return fmt.Errorf("read value file %s at offset %d: %w", r.file.Name(), offset, err)
}

// Walk calls f for every value in the order of the file; f borrows the value for the
// call. Walk ends with the first error, including one of f: after a damaged record the
// start of the next one is unknown if its length was damaged.
func (r *Reader) Walk(f func(p kv.ValuePointer, value []byte) error) error {
	var buf []byte     // of a small file no more than it has
	start := uint64(0) // of buf in the file
	need := func(at, n uint64) ([]byte, error) {
		if at < start || at+n > start+uint64(len(buf)) {
			more := min(max(n, writeBytes), r.footer.records-at)
			buf = slices.Grow(buf[:0], int(more))[:more]
			start = at
			if err := r.readAt(buf, int64(at)); err != nil {
				return nil, err
			}
		}
		return buf[at-start:][:n], nil
	}
	var values uint64
	for at := uint64(0); at < r.footer.records; values++ {
		if r.footer.records-at < recordBytes {
			return kv.Corruptf(r.file.Name(), int64(at), "record is cut short")
		}
		length, err := need(at, lengthBytes)
		if err != nil {
			return err
		}
		p := kv.ValuePointer{File: r.footer.id.Num, Offset: at, Length: binary.LittleEndian.Uint32(length)}
		if p.Length == 0 || p.Length > kv.MaxValueBytes || r.check(p) != nil {
			return kv.Corruptf(r.file.Name(), int64(at), "record has an impossible length of %d", p.Length)
		}
		sealed, err := need(at+lengthBytes, uint64(p.Length)+checksumBytes)
		if err != nil {
			return err
		}
		value, err := r.unseal(p, sealed)
		if err != nil {
			return err
		}
		if err := f(p, value); err != nil {
			return err
		}
		at += uint64(p.Length) + recordBytes
	}
	if values != r.footer.values {
		return kv.Corruptf(r.file.Name(), -1, "it has %d values, the footer says %d", values, r.footer.values)
	}
	return nil
}

// Verify reads every byte of the file again and checks every checksum. It ends with
// the first damage, or with the error of ctx.
//
// After each value Verify passes the number of bytes read to progress, if not nil.
func (r *Reader) Verify(ctx context.Context, progress func(bytes int64)) error {
	fresh := &Reader{file: r.file, identity: r.identity}
	if err := fresh.open(r.footer.id); err != nil {
		return err
	}
	if progress == nil {
		progress = func(int64) {}
	}
	progress(footerBytes)
	return fresh.Walk(func(p kv.ValuePointer, _ []byte) error {
		progress(int64(p.Length) + recordBytes)
		return ctx.Err()
	})
}
