package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Hold keeps the segments of a log from being reclaimed.
//
// Safe for concurrent use: one goroutine may release it while another one takes a snapshot.
type Hold struct {
	log      *Log
	released bool // guarded by log.mu
}

// Hold keeps every segment that exists now, and all later ones, until Release. It waits for
// a Reclaim that is under way. Writers do not wait.
func (l *Log) Hold() *Hold {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.holds++
	return &Hold{log: l}
}

var errReleased = fmt.Errorf("snapshot of the commit log: %w: its segments are not held any more", kv.ErrClosed)

// Release ends the hold. The next Reclaim deletes what was held. Idempotent.
func (h *Hold) Release() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if !h.released {
		h.released = true
		h.log.mu.holds--
	}
}

// Segments returns the segments that exist, oldest first, and the one that is written to, up to
// what is written of it; nil if the log is suspended or h is released.
func (h *Hold) Segments() (sealed []SnapshotFile, active *SnapshotFile) {
	l := h.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.released {
		return nil, nil
	}
	for _, s := range l.mu.live {
		sealed = append(sealed, l.snapshotFile(s.num, s.bytes))
	}
	if a := l.mu.active; a != nil {
		f := l.snapshotFile(a.header.num, a.off)
		active = &f
	}
	return sealed, active
}

// BytesAfter returns the bytes of the segments that hold records with numbers above flushed,
// the active one included: what the log would have if Reclaim had deleted all that it may,
// and no Hold had kept it from doing so.
func (l *Log) BytesAfter(flushed kv.SeqNum) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum int64
	if a := l.mu.active; a != nil { // not suspended
		sum = max(a.off, a.zeroedTo)
	}
	for _, s := range l.mu.live {
		if s.last > flushed {
			sum += s.bytes
		}
	}
	return sum
}

// SnapshotFile is one file of a snapshot of the log: a segment of the running log, of which
// the last one is cut after the last record of the snapshot. Its bytes never change.
type SnapshotFile struct {
	Name string // in the directory of the log
	Size int64

	id   logfile.ID
	path string
	fsys vfs.FS

	// Of the segment that is cut: bytes [0, len(head)) come from head, those before cut from
	// the segment, the rest is tail.
	head, tail []byte
	cut        int64
}

// Snapshot returns files that hold the log up to number upTo, from the lowest segment that
// exists. As the log of a store they are recovered as after a crash directly after that
// record: what follows is not in them, and recovery skips numbers, so that no number which
// the running log may have given out is given out again. The header of the last segment
// says where the log ends, so no part of it can be lost unnoticed. Its last frame says which
// segment is the lowest: a frame beyond upTo may have noted that first.
//
// Everything up to upTo must be synced, and upTo must be the last number of a record, or a
// number that was skipped. Of a log that is suspended there is no snapshot. The files can be
// read until h is released; if that is before Snapshot returns, a segment may be missing.
// Errors: kv.ErrClosed if h is released. Cost: reads the frames of the segment that is cut, at
// most 64 MiB by default, and the last of them again, under no lock. That frame may stay in
// memory until the files are not used any more.
func (h *Hold) Snapshot(ctx context.Context, upTo kv.SeqNum) ([]SnapshotFile, error) {
	l := h.log
	l.mu.Lock()
	if h.released {
		l.mu.Unlock()
		return nil, errReleased
	}
	if l.mu.active == nil {
		cause := l.mu.space.refused
		l.mu.Unlock()
		return nil, l.suspendedError(cause)
	}
	sealed := slices.Clone(l.mu.live)
	last, end, low := l.mu.active.header.num, l.mu.active.off, l.mu.low
	l.mu.Unlock()

	var files []SnapshotFile
	for _, s := range sealed {
		info, err := l.opts.FS.Stat(segmentName(l.opts.Dir, s.num))
		if err != nil {
			return nil, fmt.Errorf("snapshot of the commit log: %w", err)
		}
		if s.last > upTo {
			last, end = s.num, info.Size()
			break
		}
		files = append(files, l.snapshotFile(s.num, info.Size()))
	}
	f := l.snapshotFile(last, end)
	if err := f.cutAfter(ctx, upTo, min(low, last)); err != nil {
		return nil, err
	}
	return append(files, f), nil
}

func (l *Log) snapshotFile(num uint64, size int64) SnapshotFile {
	name := segmentName(l.opts.Dir, num)
	return SnapshotFile{
		Name: path.Base(name), Size: size, cut: size,
		id: logfile.ID{Store: l.opts.StoreID, Segment: num}, path: name, fsys: l.opts.FS,
	}
}

// cutAfter ends the file after the last record up to number upTo, with a frame that says that low
// is the lowest segment that must exist, if none before it does.
func (f *SnapshotFile) cutAfter(ctx context.Context, upTo kv.SeqNum, low uint64) (err error) {
	r, h, err := openSegment(f.fsys, f.path, f.id)
	if err != nil {
		if r != nil {
			err = errors.Join(err, r.close())
		}
		return fmt.Errorf("snapshot of the commit log: %w", err)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.size = min(r.size, f.Size) // what follows the frames of the active segment may be cut off meanwhile
	var end frame                // the last one that is kept whole
	for started, reached := false, kv.SeqNum(0); !started || reached < upTo; started = true {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		fr, reason, err := r.next()
		switch {
		case err != nil:
			return fmt.Errorf("snapshot of the commit log: %w", err)
		case reason != "":
			return kv.Corruptf(f.path, r.off, "%s, but the log was synced up to number %d", reason, upTo)
		case fr.kind == FrameData && fr.next-1 > upTo:
			if f.tail, err = cutFrame(&fr, f.id, upTo, low, nil); err != nil {
				return fmt.Errorf("snapshot of the commit log: %s at offset %d: %w", f.path, fr.off, err)
			}
			r.off = fr.off
			reached = upTo
		default:
			end = fr
			reached = fr.next - 1
		}
	}
	f.cut = r.off
	if f.tail == nil && end.low < low {
		f.cut = end.off
		if f.tail, err = r.raised(end.off, f.id, low); err != nil {
			return fmt.Errorf("snapshot of the commit log: %w", err)
		}
	}
	f.Size = f.cut + int64(len(f.tail))
	h.closed = f.Size
	f.head = h.encode()
	return nil
}

// cutFrame returns the frame with its records up to number upTo alone and a low of at least
// low; nil if there are none. Of a record that has upTo in its middle, split returns the payload of its first
// units; without split such a record is an error.
func cutFrame(f *frame, id logfile.ID, upTo kv.SeqNum, low uint64, split func(payload []byte, units uint32) ([]byte, error)) ([]byte, error) {
	cut := *f
	cut.records, cut.low = 0, max(f.low, low)
	b := make([]byte, frameHeaderBytes, f.bytes())
	err := f.each(func(r Record) (err error) {
		payload, last := r.Payload, r.Last()
		switch {
		case r.Base > upTo:
			return nil
		case last > upTo && split == nil:
			return fmt.Errorf("number %d is in the middle of a record", upTo)
		case last > upTo:
			last = upTo
			if payload, err = split(payload, uint32(upTo-r.Base+1)); err != nil {
				return err
			}
		}
		b = appendRecord(b, r.Base, uint32(last-r.Base+1), payload)
		cut.records++
		cut.next = last + 1
		return nil
	})
	if err != nil || cut.records == 0 {
		return nil, err
	}
	return sealFrame(b, id, &cut), nil
}

// raised returns the whole frame at an offset with this low.
func (r *segmentReader) raised(off int64, id logfile.ID, low uint64) ([]byte, error) {
	r.off = off
	raw, f, reason, err := r.nextRaw()
	if err == nil && reason != "" {
		err = fmt.Errorf("the frame at offset %d, which has just been read: %s", off, reason)
	}
	if err != nil {
		return nil, err
	}
	f.low = low
	payload := int(frameHeaderBytes) + len(f.payload)
	return sealFrame(bytes.Clone(raw[:payload]), id, &f), nil
}

// Through returns the file as it is read with what through returns for the file system that it is
// on.
func (f *SnapshotFile) Through(through func(vfs.FS) vfs.FS) *SnapshotFile {
	g := *f
	g.fsys = through(f.fsys)
	return &g
}

// Open opens the file for reading. The caller closes it.
func (f *SnapshotFile) Open() (*SnapshotReader, error) {
	file, err := f.fsys.Open(f.path)
	if err != nil {
		return nil, err
	}
	return &SnapshotReader{of: f, file: file}, nil
}

// Verify reads the file and checks the checksum of every frame.
func (f *SnapshotFile) Verify(ctx context.Context) (err error) {
	r, _, err := openSegment(f.fsys, f.path, f.id)
	if err != nil {
		if r != nil {
			err = errors.Join(err, r.close())
		}
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for r.off < f.cut {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		fr, reason, err := r.next()
		switch {
		case err != nil:
			return err
		case reason != "":
			return kv.Corruptf(f.path, r.off, "%s, but the log was synced beyond it", reason)
		case fr.kind == FrameEnd:
			return nil
		}
	}
	return nil
}

// SnapshotReader reads a SnapshotFile. Safe for concurrent use.
type SnapshotReader struct {
	of   *SnapshotFile
	file vfs.File
}

// ReadAt implements io.ReaderAt.
func (r *SnapshotReader) ReadAt(p []byte, off int64) (n int, err error) {
	f := r.of
	for n < len(p) && off < f.Size {
		var k int
		rest := p[n:]
		switch {
		case off < int64(len(f.head)):
			k = copy(rest, f.head[off:])
		case off < f.cut:
			rest = rest[:min(int64(len(rest)), f.cut-off)]
			if k, err = r.file.ReadAt(rest, off); k < len(rest) {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return n + k, fmt.Errorf("read %s at offset %d: %w", f.path, off, err)
			}
		default:
			k = copy(rest, f.tail[off-f.cut:])
		}
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close closes the file.
func (r *SnapshotReader) Close() error { return r.file.Close() }
