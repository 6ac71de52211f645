package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Checked is what Check found.
type Checked struct {
	Segments     int
	DroppedBytes int64 // of a torn tail, which Open would drop
	Last         uint64
	Committed    uint64 // indexes in group 0
}

// Check reads the log of a stopped replica as Open does, and changes nothing.
//
// Errors: those of Open.
func Check(fsys vfs.FS, dir string, storeID uint64) (_ Checked, err error) {
	s := newRecovery(Options{FS: fsys, Dir: dir, StoreID: storeID})
	s.reads = true
	defer func() { err = errors.Join(err, s.closeFiles()) }()
	if err := s.read(); err != nil {
		return Checked{}, err
	}
	g := s.Group(0)
	return Checked{Segments: s.report.Segments, DroppedBytes: s.report.DroppedBytes, Last: g.last(), Committed: g.hard.GetCommit()}, nil
}

// Damages reads each segment of the log of a stopped replica by itself, and returns what is wrong
// with each, joined. It is for a log that Check refuses with an error, which ends with the first
// damage; that error is the first of those returned. Segments below the lowest one that must exist
// do not count. A damaged segment is judged up to the first place without a whole frame.
//
// Cost: reads the log once more, and its last segments twice; memory for one segment.
func Damages(fsys vfs.FS, dir string, storeID uint64, refused error) error {
	s := newRecovery(Options{FS: fsys, Dir: dir, StoreID: storeID})
	s.reads = true
	errs := append([]error{refused}, s.damages(refused)...)
	return errors.Join(append(errs, s.closeFiles())...)
}

// damages returns what is wrong with the segments, without the place that refused names.
func (s *recovery) damages(refused error) (errs []error) {
	known, _ := errors.AsType[*kv.CorruptionError](refused)
	add := func(err error) {
		if damage, ok := errors.AsType[*kv.CorruptionError](err); ok && known != nil && damage.File == known.File && damage.Offset == known.Offset {
			return
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	if s.nums, err = listSegments(s.opts.FS, s.opts.Dir); err != nil {
		return []error{err}
	}
	low, last := uint64(0), uint64(0) // that must exist; that has frames
	for i := len(s.nums) - 1; i >= 0 && low == 0; i-- {
		num := s.nums[i]
		b, err := s.load(num)
		if err != nil {
			add(err)
			continue
		}
		low = lowestNamed(b, s.id(num))
		if last == 0 && s.holdsFrames(b, num) {
			last = num
			add(s.lastSegment(b, num))
		}
	}
	before := uint64(0)
	for _, num := range s.nums {
		if num < low || num > last {
			continue
		}
		if before != 0 && before+1 < num {
			add(kv.Corruptf(segmentName(s.opts.Dir, before+1), -1, "segment is missing: %s follows it", segmentName(s.opts.Dir, num)))
		}
		if before = num; num < last {
			add(CheckSegment(context.Background(), s.opts.FS, s.opts.Dir, s.opts.StoreID, num, func(int64) {}))
		}
	}
	return errs
}

// lastSegment judges the last segment that has frames, whose end may be torn.
func (s *recovery) lastSegment(b []byte, num uint64) error {
	name := segmentName(s.opts.Dir, num)
	h, err := decodeSegmentHeader(name, b)
	switch {
	case err != nil:
		return err
	case h.ID != s.id(num):
		return kv.Corruptf(name, 0, "segment belongs to another store, or was renamed")
	}
	s.claimed(address{num, h.closed})
	off, reason := int64(segmentHeaderBytes), "the file ends here"
	for off < int64(len(b)) {
		var f frame
		if f, reason = decodeFrame(b[off:], s.id(num), off); reason != "" {
			break
		}
		off, reason = f.end(), "the file ends here"
	}
	scan(b, s.id(num), off, func(f frame) { s.claimed(f.synced) })
	if (address{num, off}).less(s.claim) {
		return kv.Corruptf(name, off, "%s, but a later frame says that the log was synced beyond it; this replica has lost what it has acknowledged", reason)
	}
	return nil
}

// CheckSegment reads a segment that has a successor: every frame up to the end frame, after which
// the file ends. After each frame it passes the number of bytes to progress, which may block. A
// segment that is missing is no error, because the log may have given it up.
//
// Errors: a *kv.CorruptionError, those of the file system, that of ctx.
func CheckSegment(ctx context.Context, fsys vfs.FS, dir string, storeID, num uint64, progress func(bytes int64)) (err error) {
	name := segmentName(dir, num)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	id := logfile.ID{Store: storeID, Segment: num}
	read := func(off, n int64) ([]byte, error) {
		b := make([]byte, n)
		got, err := f.ReadAt(b, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %s at offset %d: %w", name, off, err)
		}
		return b[:got], nil
	}
	head, err := read(0, segmentHeaderBytes)
	if err != nil {
		return err
	}
	if h, err := decodeSegmentHeader(name, head); err != nil {
		return err
	} else if h.ID != id {
		return kv.Corruptf(name, 0, "segment belongs to another store, or was renamed")
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	next := uint64(0) // number of the next frame; 0: any
	for off := int64(segmentHeaderBytes); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := read(off, frameHeaderBytes)
		if err != nil {
			return err
		}
		_, length, _, reason := decodeHeader(b, id, off)
		if whole := frameBytes(int(length)); reason == "" && length <= maxPayloadBytes && off+whole <= size {
			if b, err = read(off, whole); err != nil {
				return err
			}
		}
		frame := frame{}
		if reason == "" {
			frame, reason = decodeFrame(b, id, off)
		}
		if reason == "" && next != 0 && frame.number != next {
			reason = fmt.Sprintf("frame has number %d, the one before it needs %d", frame.number, next)
		}
		if reason != "" {
			return kv.Corruptf(name, off, "%s, but the log continues in the next segment", reason)
		}
		progress(frame.end() - off)
		next, off = frame.number+1, frame.end()
		if frame.kind == kindEnd {
			if off != size {
				return kv.Corruptf(name, off, "bytes follow the end frame of the segment")
			}
			return nil
		}
	}
}

// Verify checks the segments of a running log that have a successor: see CheckSegment. It reads
// them with what through returns for the file system of the log. It passes
// the name and the result of each to verified, and ends with the first error of that. In contrast
// to most methods it may be called from any goroutine.
func (l *Log) Verify(ctx context.Context, through func(vfs.FS) vfs.FS, progress func(bytes int64), verified func(name string, err error) error) error {
	active := l.counters.active.Load()
	nums, err := listSegments(l.opts.FS, l.opts.Dir)
	if err != nil {
		return err
	}
	fsys := through(l.opts.FS)
	for _, num := range nums {
		if num < active {
			err := CheckSegment(ctx, fsys, l.opts.Dir, l.opts.StoreID, num, progress)
			if err := verified(segmentName(l.opts.Dir, num), err); err != nil {
				return err
			}
		}
	}
	return nil
}
