package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// walk replays the segments up to the place where the log ends, and makes sure that it
// may end there.
func (s *survey) walk(replay func(Record) error) error {
	for i, seg := range s.live {
		if seg.header.closed != 0 {
			s.claimed(address{seg.num, seg.header.closed})
		}
		behind, err := s.walkSegment(seg, replay)
		if err != nil {
			return err
		}
		if !seg.ended {
			return s.endAt(i, behind)
		}
	}
	if n := len(s.live); n > 0 {
		return kv.Corruptf(s.live[n-1].name, -1, "the log continues after this segment, but the next one is missing or unreadable")
	}
	return nil
}

func (s *survey) claimed(a address) {
	if s.claim.less(a) {
		s.claim = a
	}
}

// walkSegment replays the frames of a segment up to the first place without one, and
// returns what follows.
func (s *survey) walkSegment(seg *surveyed, replay func(Record) error) (behind rest, err error) {
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
	if behind, err = r.scan(r.off); err != nil {
		return rest{}, err
	}
	if seg.ended && behind.end > seg.end {
		return rest{}, kv.Corruptf(seg.name, seg.end, "bytes follow the end frame of the segment")
	}
	if seg.used && seg.header.replaces != 0 && !seg.copied {
		return rest{}, kv.Corruptf(seg.name, seg.end, "the copy of segment %d is not whole, and the original is missing", seg.header.replaces)
	}
	return behind, nil
}

// accept adds a whole frame to the survey, or returns why it cannot be where it is.
func (s *survey) accept(seg *surveyed, f *frame) string {
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
		seg.used, seg.start = true, *f
		seg.start.payload = nil // a start frame has none, but the slice would keep the read buffer
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
func (s *survey) endAt(i int, behind rest) error {
	seg := s.live[i]
	end := address{seg.num, seg.end}
	s.drop(seg, seg.end, behind)
	s.claimed(behind.claim)
	for _, later := range s.live[i+1:] {
		behind, err := s.scanAll(later)
		if err != nil {
			return err
		}
		s.claimed(behind.claim)
		if later.header.closed != 0 {
			s.claimed(address{later.num, later.header.closed})
		}
		// Frames without records are no loss.
		if behind.end > segmentHeaderBytes+int64(behind.frames)*frameHeaderBytes {
			s.drop(later, segmentHeaderBytes, behind)
		}
	}
	for _, later := range s.dead {
		if later.headerErr != nil && later.num > seg.num {
			behind, err := s.scanAll(later)
			if err != nil {
				return err
			}
			s.claimed(behind.claim)
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

func (s *survey) drop(seg *surveyed, from int64, behind rest) {
	if behind.end > from {
		s.dropped = append(s.dropped, dropped{seg.name, from, behind.end - from})
	}
}

// checkLow makes sure that no segment is missing at the lower end.
func (s *survey) checkLow() error {
	if len(s.live) > 0 && s.live[0].first() > s.low {
		return kv.Corruptf(segmentName(s.dir, s.low), -1, "segment is missing: the log begins with %s", s.live[0].name)
	}
	return nil
}
