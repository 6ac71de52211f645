package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// copyTail copies what may not be on the disk, although it could be read, to a
// new segment (Rebello et al., ATC 2020, section 4: after a failed fsync and a
// restart, the page cache shows what the disk does not have). The copy counts
// once it is durable and the first original is durably gone; until then the next
// recovery begins anew.
//
// What earlier recoveries left goes first: it is known to be dead only as long
// as the copy is there that replaced it, which may be about to be replaced itself.
func (l *Log) copyTail(s *survey) error {
	var stale, dead []*surveyed
	for _, seg := range s.dead {
		if seg.stale {
			stale = append(stale, seg)
		} else {
			dead = append(dead, seg)
		}
	}
	if err := l.remove(stale); err != nil {
		return err
	}
	from := len(s.live) - 1
	for from > 0 && s.live[from-1].num >= s.claim.segment {
		from--
	}
	kept, tail := s.live[:from], s.live[from:]
	if from == 0 {
		l.mu.low = l.mu.nextNum
	}
	if err := l.beginCopy(tail); err != nil {
		return err
	}
	for _, originals := range [][]*surveyed{tail[:1], slices.Concat(tail[1:], dead)} {
		if err := l.remove(originals); err != nil {
			return fmt.Errorf("%w: %w", errTookOver, err)
		}
	}
	l.keep(kept)
	return nil
}

// beginCopy makes a durable segment with the frames of others.
func (l *Log) beginCopy(tail []*surveyed) error {
	first := tail[0]
	h := segmentHeader{store: l.opts.StoreID, num: l.mu.nextNum, prev: first.header.prev, replaces: first.num}
	l.mu.nextNum++
	a, err := createSegment(l.opts.FS, l.opts.Dir, h)
	if err != nil {
		return err
	}
	l.mu.active = a
	start := first.start
	start.off, start.low, start.synced = a.off, l.mu.low, address{}
	if err := a.append(emptyFrame(h.id(), start)); err != nil {
		return err
	}
	for _, seg := range tail {
		if err := l.copyFrames(a, seg); err != nil {
			return err
		}
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	l.mu.syncedAt = a.address()
	if err := a.append(emptyFrame(h.id(), l.frameHere(FrameCopied))); err != nil {
		return err
	}
	if err := l.zeroFirst(a, a.off+min(firstZeros, l.opts.SegmentBytes)); err != nil {
		return err
	}
	return l.publish(a)
}

// copyFrames appends the data frames of seg to a.
func (l *Log) copyFrames(a *segment, seg *surveyed) (err error) {
	r, _, err := openSegment(l.opts.FS, seg.name, seg.header.id())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	var buf []byte
	for r.off < seg.end {
		f, reason, err := r.next()
		if err != nil {
			return err
		}
		if reason != "" {
			return kv.Corruptf(seg.name, r.off, "%s, but there was a frame a moment ago", reason)
		}
		if f.kind != FrameData {
			continue
		}
		f.off, f.low, f.synced = a.off, l.mu.low, address{}
		buf = append(append(buf[:0], make([]byte, frameHeaderBytes)...), f.payload...)
		buf = sealFrame(buf, a.header.id(), &f)
		if err := a.append(buf); err != nil {
			return err
		}
	}
	return nil
}
