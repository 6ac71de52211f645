package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// FirstFrame is the offset of the first frame of a segment. The header before it changes
// when the log is closed; a frame that is synced never changes.
const FirstFrame = segmentHeaderBytes

// DurableRange is the part of a segment that is on the disk and never changes again.
type DurableRange struct {
	Segment uint64
	Bytes   int64 // of the segment, up to End
	End     int64 // where the frames that are synced end; 0: all are, up to the end frame
}

// Durable returns what a copy of the log may hold, oldest first: the segments that have
// ended, whole, and what is synced of the segment after them. None while the log is
// suspended.
func (l *Log) Durable() []DurableRange {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active == nil {
		return nil
	}
	var all []DurableRange
	for _, s := range l.mu.live {
		if s.num >= l.mu.syncedAt.segment {
			break
		}
		all = append(all, DurableRange{Segment: s.num, Bytes: s.bytes})
	}
	if at := l.mu.syncedAt; at.off > FirstFrame {
		all = append(all, DurableRange{Segment: at.segment, Bytes: at.off, End: at.off})
	}
	return all
}

// Archived lets Reclaim delete the segments up to number segment. Only a log with
// Options.Archive needs that.
func (l *Log) Archived(segment uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.archived = max(l.mu.archived, segment)
}

// SyncAll syncs everything appended so far. Errors: those of WaitSynced.
func (l *Log) SyncAll(ctx context.Context) error { return l.WaitSynced(ctx, l.End()) }

// Frames describes successive frames of one segment.
type Frames struct {
	Previous uint64 // the segment before; 0: none
	From, To int64
	After    kv.SeqNum // the last number before these frames
	Last     kv.SeqNum // the last number in them, or After
	Ends     bool      // the last one is the end frame of the segment
}

// CopyFrames writes the frames of a segment from offset from on to w, up to offset to or,
// if that is 0, up to the end frame. Every checksum is verified, and that no frame is
// missing. The log may be open, if that part of it is durable.
//
// Errors: a *kv.CorruptionError; ErrCopiedSegment; those of the file system and of w.
func CopyFrames(ctx context.Context, fsys vfs.FS, dir string, store, segment uint64, from, to int64, w io.Writer) (_ Frames, err error) {
	name := segmentName(dir, segment)
	r, h, err := openSegment(fsys, name, logfile.ID{Store: store, Segment: segment})
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Frames{}, kv.Corruptf(name, -1, "segment is missing")
	case err != nil:
		return Frames{}, err
	case h.store != store || h.num != segment:
		return Frames{}, kv.Corruptf(name, 0, "it is segment %d of store %016x", h.num, h.store)
	case h.replaces != 0:
		return Frames{}, ErrCopiedSegment
	}
	c := Frames{Previous: h.prev, From: from, To: from}
	for r.off = from; !c.Ends && (to == 0 || r.off < to); {
		if err := ctx.Err(); err != nil {
			return c, context.Cause(ctx)
		}
		raw, f, reason, err := r.nextRaw()
		switch {
		case err != nil:
			return c, err
		case reason != "":
			return c, kv.Corruptf(name, r.off, "%s, but the log was synced beyond it", reason)
		case f.off == from:
			c.After, c.Last = f.prev, f.prev
		case f.prev != c.Last:
			return c, kv.Corruptf(name, f.off, "frame follows number %d, the one before it ends at %d", f.prev, c.Last)
		}
		if f.kind == FrameData {
			c.Last = f.next - 1
		}
		c.To, c.Ends = r.off, f.kind == FrameEnd
		if _, err := w.Write(raw); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ErrCopiedSegment: a segment was written by the recovery of an early version, which copied
// frames. No archive takes it.
var ErrCopiedSegment = errors.New("the segment is a copy that an early version made")

// nextRaw is next, and returns the bytes of the frame too. They are borrowed until the next
// call.
func (r *segmentReader) nextRaw() (raw []byte, f frame, reason string, err error) {
	at := r.off
	if left := r.size - at - frameHeaderBytes; left >= 0 {
		h, err := r.bytes(at, frameHeaderBytes)
		if err != nil {
			return nil, f, "", err
		}
		// The whole frame is in the buffer before it is verified, and is read from there.
		if n := padded(int64(binary.LittleEndian.Uint32(h[12:]))); n <= left {
			if _, err := r.bytes(at, frameHeaderBytes+n); err != nil {
				return nil, f, "", err
			}
		}
	}
	if f, reason, err = r.next(); reason != "" || err != nil {
		return nil, f, reason, err
	}
	raw, err = r.bytes(at, f.bytes())
	return raw, f, "", err
}

// SegmentNumber returns the number in the name of a segment, without its directory.
func SegmentNumber(name string) (uint64, bool) { return segmentSuffix.Parse(name) }

// Extender appends frames of an archive to a copy of the log that no process has open. The
// frames are those that the log had: the copy is cut somewhere in its last segment, and the
// first frames are those of that segment, from its beginning. They must agree with what the
// copy has.
type Extender struct {
	fsys  vfs.FS
	dir   string
	store uint64

	num  uint64
	file vfs.File
	off  int64

	same int64  // what the file has up to here must agree with the frames
	cut  *frame // the last frame of the copy, which may lack records and have a higher low
	low  uint64 // of the copy, by its last segment
	buf  []byte
}

// Low returns the lowest segment that must exist by what the copy said before it was extended.
func (x *Extender) Low() uint64 { return x.low }

// NewExtender opens a copy of a log. The caller closes it.
func NewExtender(fsys vfs.FS, dir string, store uint64) (*Extender, error) {
	nums, err := listSegments(fsys, dir)
	if err != nil {
		return nil, err
	}
	if len(nums) == 0 {
		return nil, kv.Corruptf(dir, -1, "the commit log is missing")
	}
	x := &Extender{fsys: fsys, dir: dir, store: store, num: nums[len(nums)-1], off: FirstFrame, same: FirstFrame}
	if err := x.readLast(); err != nil {
		return nil, err
	}
	x.file, err = fsys.OpenReadWrite(segmentName(dir, x.num))
	return x, err
}

// readLast finds the last frame of the last segment.
func (x *Extender) readLast() (err error) {
	name := segmentName(x.dir, x.num)
	r, _, err := openSegment(x.fsys, name, logfile.ID{Store: x.store, Segment: x.num})
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	if err != nil {
		return err
	}
	for {
		f, reason, err := r.next()
		if err != nil || reason != "" {
			return err
		}
		x.same, x.low = f.off, max(x.low, f.low)
		f.payload = append([]byte(nil), f.payload...)
		x.cut = &f
	}
}

// Segment returns the number of the segment that is being written.
func (x *Extender) Segment() uint64 { return x.num }

// Next continues in a new segment, which follows the present one.
func (x *Extender) Next(num uint64) error {
	prev := x.num
	if err := x.end(); err != nil {
		return err
	}
	s, err := createSegment(x.fsys, x.dir, segmentHeader{store: x.store, num: num, prev: prev})
	if err != nil {
		return err
	}
	x.num, x.file, x.off, x.same, x.cut = num, s.file, FirstFrame, 0, nil
	return nil
}

// errDiffers: the archive does not continue the copy.
var errDiffers = errors.New("the frames of the archive differ from those of the backup")

// Write implements io.Writer.
//
// Errors: kv.ErrInvalidArgument if the frames are not those of the copy.
func (x *Extender) Write(p []byte) (int, error) {
	if n := min(int64(len(p)), x.same-x.off); n > 0 {
		if int64(cap(x.buf)) < n {
			x.buf = make([]byte, n)
		}
		has := x.buf[:n]
		if _, err := x.file.ReadAt(has, x.off); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if string(has) != string(p[:n]) {
			return 0, x.differs()
		}
	}
	if _, err := x.file.WriteAt(p, x.off); err != nil {
		return 0, err
	}
	x.off += int64(len(p))
	return len(p), nil
}

func (x *Extender) differs() error {
	return fmt.Errorf("%w: segment %d: %w", kv.ErrInvalidArgument, x.num, errDiffers)
}

// end syncs and closes the present segment, and compares the frame in which the copy was
// cut with what replaced it.
func (x *Extender) end() (err error) {
	if x.file == nil {
		return nil
	}
	f := x.file
	x.file = nil
	if err := errors.Join(f.Sync(), f.Close()); err != nil || x.cut == nil {
		return err
	}
	name := segmentName(x.dir, x.num)
	r, _, err := openSegment(x.fsys, name, logfile.ID{Store: x.store, Segment: x.num})
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	if err != nil {
		return err
	}
	r.off = x.cut.off
	now, reason, err := r.next()
	switch {
	case err != nil:
		return err
	case reason != "", now.kind != x.cut.kind, now.prev != x.cut.prev, now.next < x.cut.next,
		len(now.payload) < len(x.cut.payload), string(now.payload[:len(x.cut.payload)]) != string(x.cut.payload):
		return x.differs()
	}
	return nil
}

// Close ends the last segment. It does not make the names durable: see Cut.
func (x *Extender) Close() error { return x.end() }

// Cut ends a log that no process has open after number upTo, or where it ends. What follows
// is removed; the header of the last segment says where the log ends, and recovery skips
// numbers as after a crash. The last frame says that low is the lowest segment that must exist, or
// a higher one: the frame that said so may be among those removed. A record that has upTo in its middle is passed to split, which
// returns the payload of its first units. Everything is synced.
func Cut(fsys vfs.FS, dir string, store uint64, upTo kv.SeqNum, low uint64, split func(payload []byte, units uint32) ([]byte, error)) error {
	nums, err := listSegments(fsys, dir)
	if err != nil {
		return err
	}
	for i, num := range nums {
		done, err := cutSegment(fsys, segmentName(dir, num), logfile.ID{Store: store, Segment: num}, upTo, min(low, num), i == len(nums)-1, split)
		if err != nil {
			return fmt.Errorf("end the commit log after number %d: %w", upTo, err)
		}
		if !done {
			continue
		}
		for j := len(nums) - 1; j > i; j-- {
			if err := fsys.Remove(segmentName(dir, nums[j])); err != nil {
				return err
			}
		}
		return fsys.SyncDir(dir)
	}
	return kv.Corruptf(dir, -1, "the commit log is missing")
}

// cutSegment ends the log in a segment if that is the last one or has a later number.
func cutSegment(fsys vfs.FS, name string, id logfile.ID, upTo kv.SeqNum, low uint64, last bool, split func([]byte, uint32) ([]byte, error)) (done bool, err error) {
	r, h, err := openSegment(fsys, name, id)
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	if err != nil {
		return false, err
	}
	var tail []byte
	var kept frame // the last one that is kept whole
	end := r.off
	for !done {
		f, reason, err := r.next()
		switch {
		case err != nil:
			return false, err
		case reason != "" && !last:
			return false, kv.Corruptf(name, r.off, "%s, but another segment follows", reason)
		case reason != "" || last && (f.kind == FrameClose || f.kind == FrameEnd):
			done = true
		case f.kind == FrameEnd:
			return false, nil
		case f.kind == FrameData && f.next-1 > upTo:
			if tail, err = cutFrame(&f, id, upTo, low, split); err != nil {
				return false, err
			}
			done = true
		default:
			end, kept = r.off, f
		}
	}
	if tail == nil && kept.kind != 0 && kept.low < low {
		end = kept.off
		if tail, err = r.raised(end, id, low); err != nil {
			return false, err
		}
	}
	file, err := fsys.OpenReadWrite(name)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(end); err != nil {
		return false, err
	}
	if len(tail) > 0 {
		if _, err := file.WriteAt(tail, end); err != nil {
			return false, err
		}
	}
	h.closed = end + int64(len(tail))
	if _, err := file.WriteAt(h.encode(), 0); err != nil {
		return false, err
	}
	return true, file.Sync()
}
