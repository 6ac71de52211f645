package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// walk replays the segments up to the place where the log ends, and makes sure that it
// may end there.
func (s *recoveryScan) walk(replay func(Record) error) error {
	for i, seg := range s.live {
		if seg.header.closed != 0 {
			s.claimed(address{seg.num, seg.header.closed})
		}
		tail, err := s.walkSegment(seg, replay)
		if err != nil {
			return err
		}
		if !seg.ended {
			return s.endAt(i, tail)
		}
	}
	if n := len(s.live); n > 0 {
		return kv.Corruptf(s.live[n-1].name, -1, "the log continues after this segment, but the next one is missing or unreadable")
	}
	return nil
}

func (s *recoveryScan) claimed(a address) {
	if s.claim.less(a) {
		s.claim = a
	}
}

// walkSegment replays the frames of a segment up to the first place without one, and
// returns what follows.
func (s *recoveryScan) walkSegment(seg *scannedSegment, replay func(Record) error) (tail rest, err error) {
	r, _, err := openSegment(s.fsys, seg.name, s.id(seg.num))
	if err != nil {
		return rest{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for !seg.ended {
		f, reason, err := r.next()
		if err != nil {
			return rest{}, err
		}
		if reason != "" {
			break
		}
		if reason := s.accept(seg, &f); reason != "" {
			return rest{}, kv.Corruptf(seg.name, f.off, "%s", reason)
		}
		if err := f.each(func(rec Record) error {
			s.records++
			return replay(rec)
		}); err != nil {
			return rest{}, fmt.Errorf("replay %s at offset %d: %w", seg.name, f.off, err)
		}
	}
	seg.end, seg.last = r.off, s.last
	if tail, err = r.scan(r.off); err != nil {
		return rest{}, err
	}
	if seg.ended && tail.end > seg.end {
		return rest{}, kv.Corruptf(seg.name, seg.end, "bytes follow the end frame of the segment")
	}
	if seg.used && seg.header.replaces != 0 && !seg.copied {
		return rest{}, kv.Corruptf(seg.name, seg.end, "the copy of segment %d is not whole, and the original is missing", seg.header.replaces)
	}
	return tail, nil
}

// accept adds a whole frame to the scan, or returns why it cannot be where it is.
func (s *recoveryScan) accept(seg *scannedSegment, f *frame) string {
	first := f.off == segmentHeaderBytes
	switch {
	case first != (f.kind == FrameStart):
		return fmt.Sprintf("%s frame in the wrong place", f.kind)
	case first && seg == s.live[0]:
		s.last = f.prev // the segments before were reclaimed
	case seg.closed && f.kind != FrameEnd:
		return fmt.Sprintf("%s frame after the close frame", f.kind)
	case f.prev != s.last:
		return fmt.Sprintf("frame follows number %d, the one before it ends at %d", f.prev, s.last)
	case f.kind == FrameCopied && (seg.header.replaces == 0 || seg.copied):
		return "copied frame in the wrong place"
	case address{seg.num, f.off}.less(f.synced):
		return "frame says that the log was synced beyond it"
	}
	switch f.kind {
	case FrameStart:
		seg.used = true
	case FrameEnd:
		seg.ended = true
	case FrameClose:
		seg.closed = true
	case FrameCopied:
		seg.copied = true
	case FrameData:
		s.last = f.next - 1
	}
	s.next = max(s.next, f.next)
	s.low = max(s.low, f.low)
	s.claimed(f.synced)
	return ""
}

// endAt ends the log in segment i, where its whole frames end. That is damage if anything
// says that the log was synced beyond that place. Otherwise nothing after it was
// acknowledged as synced, and it is dropped.
func (s *recoveryScan) endAt(i int, tail rest) error {
	seg := s.live[i]
	end := address{seg.num, seg.end}
	s.drop(seg, seg.end, tail)
	s.claimed(tail.claim)
	for _, later := range s.live[i+1:] {
		tail, err := s.scanAll(later)
		if err != nil {
			return err
		}
		s.claimed(tail.claim)
		if later.header.closed != 0 {
			s.claimed(address{later.num, later.header.closed})
		}
		// Frames without records are no loss.
		if tail.end > segmentHeaderBytes+int64(tail.frames)*frameHeaderBytes {
			s.drop(later, segmentHeaderBytes, tail)
		}
	}
	for _, later := range s.dead {
		if later.headerErr != nil && later.num > seg.num {
			tail, err := s.scanAll(later)
			if err != nil {
				return err
			}
			s.claimed(tail.claim)
		}
	}
	if end.less(s.claim) {
		return kv.Corruptf(seg.name, seg.end, "no whole frame here, but the log was synced up to segment %d offset %d",
			s.claim.segment, s.claim.off)
	}
	s.dead = append(s.dead, s.live[i+1:]...)
	s.live = s.live[:i+1]
	if s.clean = seg.closed && seg.header.closed == seg.end; s.clean {
		s.dropped = nil // at most an end frame: no record followed
	}
	if !seg.used {
		// It was created and never used.
		s.live = s.live[:i]
		if i > 0 {
			s.unused = seg
		} else {
			s.dead = append(s.dead, seg)
		}
	}
	return nil
}

func (s *recoveryScan) drop(seg *scannedSegment, from int64, tail rest) {
	if tail.end > from {
		s.dropped = append(s.dropped, dropped{seg.name, from, tail.end - from})
	}
}

// checkLow makes sure that no segment is missing at the lower end.
func (s *recoveryScan) checkLow() error {
	if len(s.live) > 0 && s.live[0].first() > s.low {
		return kv.Corruptf(segmentName(s.dir, s.low), -1, "segment is missing: the log begins with %s", s.live[0].name)
	}
	return nil
}
