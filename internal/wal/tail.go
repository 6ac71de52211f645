package wal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// goOn makes a log that has segments ready to be appended to. Every step leaves a log
// that holds the same records, so recovery may be interrupted after any of them and start
// over.
//
// What could be read may be missing on the disk: after a failed fsync and a restart, the
// page cache shows what the disk does not have (Rebello et al., ATC 2020, section 4). So
// goOn rewrites in place what no frame says was synced, and syncs it. That changes no
// byte, so nothing is lost if the power fails meanwhile. The log continues in a new
// segment, and an end frame in the last one then says that it exists. So recovery needs
// space for a new segment alone.
func (l *Log) goOn(s *recoveryScan) error {
	if err := l.removeDead(s.dead); err != nil {
		return err
	}
	old := s.live[len(s.live)-1]
	if !s.clean {
		if err := l.rewriteTail(s); err != nil {
			return err
		}
		l.mu.syncedAt = address{old.num, old.end}
	}
	switch {
	case old.ended:
		if err := l.takeIntoUse(s.unused, old.num); err != nil {
			return err
		}
	default:
		if err := l.beginSegment(segmentHeader{prev: old.num}); err != nil {
			return err
		}
		if err := l.endLast(old); err != nil {
			return err
		}
	}
	l.keep(s.live)
	return nil
}

// removeDead deletes the segments that do not count. First those that earlier recoveries
// left: they are known to be dead only while the copy that replaced them exists. Then
// those after the end of the log, the last first, so that no segment in between is
// missing at any time.
func (l *Log) removeDead(dead []*scannedSegment) error {
	dead = slices.Clone(dead)
	slices.SortFunc(dead, func(a, b *scannedSegment) int { return cmp.Compare(b.num, a.num) })
	stale := func(seg *scannedSegment) bool { return seg.stale }
	if err := l.remove(slices.DeleteFunc(slices.Clone(dead), func(seg *scannedSegment) bool { return !stale(seg) })); err != nil {
		return err
	}
	for _, seg := range slices.DeleteFunc(dead, stale) {
		if err := l.remove([]*scannedSegment{seg}); err != nil {
			return err
		}
	}
	return nil
}

// rewriteTail makes durable what follows the place up to which the log was surely synced.
func (l *Log) rewriteTail(s *recoveryScan) error {
	for i, seg := range s.live {
		from, last := int64(0), i == len(s.live)-1
		switch {
		case seg.num < s.claim.segment:
			continue
		case seg.num == s.claim.segment:
			from = min(s.claim.off, seg.end)
		}
		if err := l.rewrite(seg, from, last && !seg.ended); err != nil {
			return err
		}
	}
	return nil
}

// rewrite rewrites a segment from an offset on, with the same bytes, and syncs it. If
// cut, it also removes everything after the last frame: nothing may follow the end frame
// that comes next.
func (l *Log) rewrite(seg *scannedSegment, from int64, cut bool) (err error) {
	f, err := l.opts.FS.OpenReadWrite(seg.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, min(readAhead, seg.end-from))
	for at := from; at < seg.end; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), seg.end-at)]
		if _, err := f.ReadAt(buf, at); err != nil {
			return fmt.Errorf("read %s at offset %d: %w", seg.name, at, err)
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
	}
	if cut { // whatever the length of the file is: space may be reserved beyond it
		if n := min(seg.bytes-seg.end, frameHeaderBytes); n > 0 {
			if _, err := f.WriteAt(zeros[:n], seg.end); err != nil {
				return err
			}
		}
		if err := f.Truncate(seg.end + frameHeaderBytes); err != nil { // the space of an end frame stays
			return err
		}
	}
	return f.Sync()
}

// takeIntoUse makes seg the active segment. The segment before it has an end frame, but
// seg has no start frame: a crash came in between. What seg holds after its header are
// remains of frames that do not count.
func (l *Log) takeIntoUse(seg *scannedSegment, prev uint64) error {
	f, err := l.opts.FS.OpenReadWrite(seg.name)
	if err != nil {
		return err
	}
	a := &segment{header: segmentHeader{store: l.opts.StoreID, num: seg.num, prev: prev}, name: seg.name, file: f, off: segmentHeaderBytes}
	if err := a.clear(); err != nil {
		return errors.Join(err, f.Close())
	}
	l.mu.active = a
	if err := l.startIn(a); err != nil {
		l.mu.active = nil // so that undo does not remove it
		return errors.Join(err, f.Close())
	}
	return nil
}

// clear removes all but the header of a segment, durably.
func (s *segment) clear() error {
	if _, err := s.file.WriteAt(s.header.encode(), 0); err != nil {
		return err
	}
	if err := s.file.Truncate(segmentHeaderBytes); err != nil {
		return err
	}
	return s.file.Sync()
}

// endLast writes an end frame to the last segment, whose successor exists. After a log
// that was closed in order it rewrites the close frame too, because its sync may have
// failed.
func (l *Log) endLast(old *scannedSegment) (err error) {
	f, err := l.opts.FS.OpenReadWrite(old.name)
	if err != nil {
		return err
	}
	written := false
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil && written {
			err = fmt.Errorf("%w: %w", errTookOver, err)
		}
	}()
	at := old.end - frameHeaderBytes
	tail := make([]byte, frameHeaderBytes, 2*frameHeaderBytes)
	if _, err := f.ReadAt(tail, at); err != nil {
		return err
	}
	if !old.closed {
		at, tail = old.end, tail[:0]
	}
	if err := f.Reserve(old.end, frameHeaderBytes); err != nil {
		return err
	}
	end := l.frameHere(FrameEnd)
	end.off, end.synced = old.end, address{old.num, old.end}
	written = true // from here on the new segment must stay
	if _, err := f.WriteAt(append(tail, emptyFrame(old.header.id(), end)...), at); err != nil {
		return err
	}
	return f.Sync()
}
