package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// readAhead is how many bytes a reader reads from the file at a time.
const readAhead = 256 << 10

// segmentReader decodes the frames of one segment: recovery, the verifier and
// the dump command all read through it.
type segmentReader struct {
	name string
	id   logfile.ID
	file vfs.File
	size int64
	off  int64 // of the next frame

	ahead int64  // how many bytes to read at a time
	buf   []byte // of the file, from bufAt on
	bufAt int64
}

// openSegment opens a segment for reading and decodes its header. If the header is
// damaged, the error is a *kv.CorruptionError, and the reader is usable all the same: it
// then expects the segment id.
func openSegment(fsys vfs.FS, name string, id logfile.ID) (*segmentReader, segmentHeader, error) {
	return openSegmentAhead(fsys, name, id, readAhead)
}

// openSegmentAhead is openSegment of a reader that reads so many bytes at a time: 0 for one of which
// the caller wants the header alone.
func openSegmentAhead(fsys vfs.FS, name string, id logfile.ID, ahead int64) (*segmentReader, segmentHeader, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, segmentHeader{}, err
	}
	r := &segmentReader{name: name, id: id, file: f, off: segmentHeaderBytes, ahead: ahead}
	if r.size, err = f.Size(); err != nil {
		return nil, segmentHeader{}, errors.Join(err, f.Close())
	}
	b, err := r.bytes(0, min(segmentHeaderBytes, r.size))
	if err != nil {
		return nil, segmentHeader{}, errors.Join(err, f.Close())
	}
	h, err := decodeSegmentHeader(name, b)
	if err != nil && !errors.Is(err, kv.ErrCorrupt) {
		return nil, segmentHeader{}, errors.Join(err, f.Close())
	}
	return r, h, err
}

func (r *segmentReader) close() error { return r.file.Close() }

// bytes returns n bytes of the file at off, borrowed until the next call. They
// must lie within the file, which bounds what is allocated for them.
func (r *segmentReader) bytes(off, n int64) ([]byte, error) {
	if off < r.bufAt || off+n > r.bufAt+int64(len(r.buf)) {
		want := min(max(n, r.ahead), r.size-off)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.bufAt = r.buf[:want], off
		if got, err := r.file.ReadAt(r.buf, off); int64(got) < want {
			r.buf = r.buf[:0]
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %s at offset %d: %w", r.name, off, err)
		}
	}
	return r.buf[off-r.bufAt:][:n:n], nil
}

// next returns the frame at r.off and moves past it. If there is none, reason says why;
// it is empty only for a whole frame. The payload is borrowed until the next call.
func (r *segmentReader) next() (f frame, reason string, err error) {
	if f, reason, err = r.frameAt(r.off); reason == "" && err == nil {
		r.off += f.bytes()
	}
	return f, reason, err
}

func (r *segmentReader) frameAt(off int64) (f frame, reason string, err error) {
	left := r.size - off - frameHeaderBytes
	if left < 0 {
		return frame{}, "the file ends here", nil
	}
	h, err := r.bytes(off, frameHeaderBytes)
	if err != nil {
		return frame{}, "", err
	}
	f, n, reason := decodeFrameHeader(h, r.id, off)
	if reason != "" {
		return frame{}, reason, nil
	}
	if padded(int64(n)) > left {
		return frame{}, "frame longer than the file", nil
	}
	sum := binary.LittleEndian.Uint32(h[8:])
	body, err := r.bytes(off+frameHeaderBytes, padded(int64(n)))
	if err != nil {
		return frame{}, "", err
	}
	if logfile.Sum(body) != sum {
		return frame{}, "frame fails its checksum", nil
	}
	f.payload = body[:n:n]
	if reason := f.check(); reason != "" {
		return frame{}, "", kv.Corruptf(r.name, off, "%s", reason)
	}
	if !allZero(body[n:]) {
		return frame{}, "", kv.Corruptf(r.name, off, "padding is not zero")
	}
	return f, "", nil
}

// rest describes what follows the last frame of a segment.
type rest struct {
	end    int64   // end of the last byte that is not zero
	claim  address // the furthest synced address that a whole frame names
	frames int     // whole frames
}

// scan examines everything from offset from on. Whole frames may begin at any multiple of
// frameAlign.
func (r *segmentReader) scan(from int64) (rest, error) {
	found := rest{end: from}
	from = padded(from)
	for off := from; off < r.size; {
		n := min(readAhead, r.size-off)
		chunk, err := r.bytes(off, n)
		if err != nil {
			return found, err
		}
		if i := lastNonZero(chunk); i >= 0 {
			found.end = off + int64(i) + 1
			if err := r.scanChunk(off, n, &found); err != nil {
				return found, err
			}
		}
		off += n
	}
	return found, nil
}

func (r *segmentReader) scanChunk(off, n int64, found *rest) error {
	for i := int64(0); i+4 <= n; i += frameAlign {
		chunk, err := r.bytes(off, n) // again: frameAt may have moved the buffer
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(chunk[i:]) != frameMagic {
			continue
		}
		f, reason, err := r.frameAt(off + i)
		if err != nil {
			return err
		}
		if reason == "" {
			found.frames++
			if found.claim.less(f.synced) {
				found.claim = f.synced
			}
		}
	}
	return nil
}

func lastNonZero(b []byte) int {
	if allZero(b) {
		return -1
	}
	i := len(b) - 1
	for b[i] == 0 {
		i--
	}
	return i
}

func allZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeros))
		if !bytes.Equal(b[:n], zeros[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
