package wal

import (
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// FrameInfo describes one frame of a segment for human eyes.
type FrameInfo struct {
	Offset int64
	Bytes  int64 // on disk
	Kind   FrameKind
	Prev   kv.SeqNum // last number of a record before the frame
	Next   kv.SeqNum // number that follows the frame
	Low    uint64    // lowest segment that must exist

	// The log was synced up to this place when the frame was laid out.
	SyncedSegment uint64
	SyncedOffset  int64

	Records []Record // the payloads are borrowed until fn returns
}

// SegmentInfo describes a segment for human eyes.
type SegmentInfo struct {
	StoreID  uint64
	Num      uint64
	Prev     uint64 // the segment before; 0: none
	Replaces uint64 // the lowest of the segments that recovery copied into this one; 0: none
	Closed   int64  // where the log ended when it was closed in order; 0: it was not
	Bytes    int64  // length of the file
	End      int64  // end of the last whole frame in order
	Tail     int64  // bytes after End up to the last that is not zero
}

// Dump calls fn for every whole frame of a segment, in order, up to the first place
// without one, and describes the segment. It changes nothing and reads only that file. An
// error of fn ends the dump and is returned. Whether a tail is damage depends on the
// whole log; see Verify.
func Dump(fsys vfs.FS, name string, fn func(FrameInfo) error) (info SegmentInfo, err error) {
	r, h, err := openSegment(fsys, name, logfile.ID{})
	if r == nil {
		return SegmentInfo{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return SegmentInfo{Bytes: r.size}, err
	}
	r.id = h.id()
	info = SegmentInfo{StoreID: h.store, Num: h.num, Prev: h.prev, Replaces: h.replaces, Closed: h.closed, Bytes: r.size}
	for {
		f, reason, err := r.next()
		if info.End = r.off; err != nil {
			return info, err
		}
		if reason != "" {
			break
		}
		if err := fn(f.info()); err != nil {
			return info, err
		}
	}
	tail, err := r.scan(r.off)
	info.Tail = tail.end - r.off
	return info, err
}

// DumpRest goes on where Dump ended, at offset from: it calls gap for each part without whole frames,
// and fn for each whole frame after one, in order. Zeros up to the end of the file are no gap.
func DumpRest(fsys vfs.FS, name string, from int64, fn func(FrameInfo) error, gap func(off, bytes int64)) (err error) {
	r, h, err := openSegment(fsys, name, logfile.ID{})
	if r == nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return err
	}
	for r.id, r.off = h.id(), from; ; {
		f, reason, err := r.next()
		switch {
		case errors.Is(err, kv.ErrCorrupt): // the frame verifies, and makes no sense
		case err != nil:
			return err
		case reason == "":
			if err := fn(f.info()); err != nil {
				return err
			}
			continue
		}
		next, end, err := r.resync(r.off)
		if err != nil {
			return err
		}
		if end > r.off {
			gap(r.off, end-r.off)
		}
		if next < 0 {
			return nil
		}
		r.off = next
	}
}

func (f *frame) info() FrameInfo {
	info := FrameInfo{
		Offset: f.off, Bytes: f.bytes(), Kind: f.kind, Prev: f.prev, Next: f.next, Low: f.low,
		SyncedSegment: f.synced.segment, SyncedOffset: f.synced.off,
	}
	// A checked frame has whole records, and the visitor returns no error.
	_ = f.each(func(r Record) error {
		info.Records = append(info.Records, r)
		return nil
	})
	return info
}

// Report is what Verify found.
type Report struct {
	Recovery
	Files []FileReport
	// Problem is why the log would not open; nil if it would. It is a *kv.CorruptionError or
	// wraps kv.ErrUnsupportedVersion. Verify stops there and looks for no further damage:
	// see Damages.
	Problem error
}

// FileReport is the state of one segment.
type FileReport struct {
	Name  string
	Bytes int64
	Live  bool // false: recovery removes it, because it holds nothing that counts
}

// Verify reads a whole log as Open does, with the same code, and changes nothing. fn is
// called for each record, in order; its error ends the verification and is returned.
// Other errors are those of the file system; damage to the log is in the report.
func Verify(fsys vfs.FS, dir string, storeID uint64, fn func(Record) error) (Report, error) {
	s, err := scanLog(fsys, dir, storeID, fn)
	if err == nil && len(s.live) == 0 {
		err = kv.Corruptf(dir, -1, "the commit log is missing")
	}
	report := Report{Recovery: s.recovery()}
	for _, seg := range s.live {
		report.Files = append(report.Files, FileReport{seg.name, seg.bytes, true})
	}
	if s.unused != nil {
		report.Files = append(report.Files, FileReport{s.unused.name, s.unused.bytes, true})
	}
	for _, seg := range s.dead {
		report.Files = append(report.Files, FileReport{seg.name, seg.bytes, false})
	}
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion) {
		report.Problem, err = err, nil
	}
	return report, err
}

// Empty reports whether a file never held a record of Append: it is a segment without
// records, or what a crash left of one being created. The creation of a store uses it to
// recognize what an earlier, unfinished creation left.
func Empty(fsys vfs.FS, name string) (empty bool, err error) {
	records := false
	info, err := Dump(fsys, name, func(f FrameInfo) error {
		records = records || f.Kind == FrameData
		return nil
	})
	if errors.Is(err, kv.ErrCorrupt) {
		return noHeader(fsys, name)
	}
	// The tail may be any part of a start frame and of the close frame that a failed
	// creation writes after it.
	return err == nil && !records && (info.Tail == 0 || info.End+info.Tail <= segmentHeaderBytes+2*frameHeaderBytes), err
}

// noHeader reports whether the header of a segment was never written, and nothing after
// the place of its start frame.
func noHeader(fsys vfs.FS, name string) (none bool, err error) {
	r, _, err := openSegment(fsys, name, logfile.ID{})
	if r == nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	header, err := r.bytes(0, min(segmentHeaderBytes, r.size))
	if err != nil || !allZero(header) {
		return false, err
	}
	tail, err := r.scan(0)
	return err == nil && tail.end <= segmentHeaderBytes+frameHeaderBytes, err
}
