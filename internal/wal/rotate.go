package wal

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/vfs"
)

// zeroPause is the pause between two chunks while a segment is filled with zeros.
// Measured on a busy machine with 64 writers that wait for syncs: without it p99 was
// 26-34 ms and the longest wait 100-220 ms, with it 20-26 and 60-130.
const zeroPause = 10 * time.Millisecond

// zeroedGrowth is how many times as many zeros a segment gets as the one before it, up to
// SegmentBytes. The first segment has few, so that Open is quick. If the second had full
// length, the first would grow beyond its zeros, at half the speed, until all zeros of
// the second are on the disk: most of a second. Doubling keeps the zeros written so far
// below five times the log, once it has more than a few MiB.
const zeroedGrowth = 2

// prepareAfter is the part of the active segment's zeros, one in so many, that must be
// used before the zeros of the next segment are written. Writing them earlier is wasted
// if the log is slow, and disturbs its syncs. A log of 48 MB/s (256 writers of 128 bytes)
// uses the rest of 64 MiB in a second, which is how long the zeros of the next segment
// take.
const prepareAfter = 4

// rotationDue reports whether a frame of that many bytes should go to the next segment,
// because the active one is full, or because it has no zeros left and the next one has.
// The caller has the writing role.
func (l *Log) rotationDue(bytes int64) bool {
	a := l.mu.active
	if !a.inUse() {
		return false
	}
	end := a.off + bytes + frameHeaderBytes // with an end frame
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.space.refused != nil {
		return false // what was admitted fits here
	}
	if end > l.opts.SegmentBytes {
		return true
	}
	return end > a.zeroedTo && l.mu.prepared != nil
}

// rotate ends the active segment and continues in the next one. The caller has the
// writing role.
//
// The next segment exists, durably, before an end frame says so. Nothing waits for the
// sync of the old segment: until it is done, frames of the next one say that the old one
// is not synced, which tells a tail torn across the two from damage. Only a second
// rotation waits for that sync. Cost: two small writes if the next segment is prepared,
// else the creation of a small file; if the preparation is under way, at most the sync of
// one chunk of zeros.
func (l *Log) rotate() error {
	l.mu.Lock()
	for (l.mu.sealed != nil || l.mu.preparing) && l.Err() == nil {
		l.hurry.Store(l.mu.preparing)
		l.mu.changed.Wait()
	}
	l.hurry.Store(l.mu.closed)
	next := l.mu.prepared
	l.mu.prepared = nil
	// From here on no goroutine prepares a successor of the old segment: there would be two.
	l.mu.preparedFor = l.mu.active.header.num
	l.mu.Unlock()
	if err := l.Err(); err != nil {
		return errors.Join(err, discardIfAny(l, next))
	}
	var err error
	if next == nil {
		next, err = l.createNext()
	}
	if err == nil {
		err = l.makeRoomIn(next)
	}
	if vfs.CannotWrite(err) {
		l.refuse(err)
		return discardIfAny(l, next) // what was admitted fits into the active one
	}
	if err != nil {
		return errors.Join(err, discardIfAny(l, next))
	}
	if err := l.switchTo(next); err != nil {
		return errors.Join(err, next.file.Close())
	}
	if l.opts.Events.SegmentCreated != nil {
		l.opts.Events.SegmentCreated(event.Segment{Num: next.header.num, Bytes: max(next.zeroedTo, next.off)})
	}
	return nil
}

func discardIfAny(l *Log, s *segment) error {
	if s == nil {
		return nil
	}
	return s.discard(l.opts.FS)
}

func (l *Log) switchTo(next *segment) error {
	old := l.mu.active
	if err := l.writeEmpty(FrameEnd); err != nil {
		return err
	}
	l.mu.Lock()
	reservedTo := old.reservedTo // read under mu: a reservation may be under way
	l.mu.Unlock()
	if reservedTo > old.off+keptReserved {
		if err := old.file.Truncate(old.off); err != nil {
			return fmt.Errorf("release reserved space of the commit log: %w", err)
		}
	}
	start := l.frameHere(FrameStart)
	start.off = next.off
	frame := emptyFrame(next.header.id(), start)
	if _, err := next.file.WriteAt(frame, next.off); err != nil {
		return fmt.Errorf("write commit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next.off += int64(len(frame)) // under mu: Append reads it, since records must fit here too
	l.mu.space.next = nil
	l.roomChangedLocked()
	next.last = l.mu.last
	l.mu.live = append(l.mu.live, liveSegment{num: old.header.num, bytes: max(old.off, old.zeroedTo), last: old.last})
	l.mu.sealed, l.mu.active = old, next
	l.mu.mustSync, l.mu.zeroedWanted = true, false
	return nil
}

// createNext creates the segment that follows the active one: small, and durable.
func (l *Log) createNext() (*segment, error) {
	l.mu.Lock()
	h := l.nextHeaderLocked()
	l.mu.Unlock()
	s, err := createSegment(l.opts.FS, l.opts.Dir, h)
	if err != nil {
		return nil, fmt.Errorf("create commit log segment: %w", err)
	}
	if err := l.publish(s); err != nil {
		return nil, fmt.Errorf("create commit log segment: %w", errors.Join(err, s.discard(l.opts.FS)))
	}
	return s, nil
}

func (l *Log) nextHeaderLocked() segmentHeader {
	h := segmentHeader{store: l.opts.StoreID, num: l.mu.nextNum, prev: l.mu.active.header.num}
	l.mu.nextNum++
	return h
}

// publish makes a segment and its name durable.
func (l *Log) publish(s *segment) error {
	if err := s.file.Sync(); err != nil {
		return err
	}
	return l.opts.FS.SyncDir(l.opts.Dir)
}

// prepareIfWantedLocked begins to create the next segment if records ask for syncs:
// overwriting zeros that are on the disk takes half the time of growing a file. Without
// syncs the zeros would only double what is written.
func (l *Log) prepareIfWantedLocked() {
	active := l.mu.active.header.num
	if !l.mu.zeroedWanted || l.mu.preparing || l.mu.prepared != nil || l.mu.preparedFor == active || l.mu.closed {
		return
	}
	if l.mu.active.off < l.mu.active.zeroedTo/prepareAfter {
		return
	}
	l.mu.preparing, l.mu.preparedFor = true, active
	h := l.nextHeaderLocked()
	to := min(l.opts.SegmentBytes, zeroedGrowth*max(l.mu.active.zeroedTo, zeroChunk))
	l.background.Go(func() { l.prepare(h, to) })
}

// prepare creates the next segment and fills it with zeros up to to. If that fails,
// rotate creates a small one, or fails in turn.
func (l *Log) prepare(h segmentHeader, to int64) {
	defer l.opts.Events.Guard()
	s, err := createSegment(l.opts.FS, l.opts.Dir, h)
	if err == nil {
		if err = l.zeroFill(s, to); err != nil {
			err = errors.Join(err, s.discard(l.opts.FS))
			s = nil
		}
	}
	l.mu.Lock()
	l.mu.prepared, l.mu.preparing = s, false
	l.mu.changed.Broadcast()
	l.mu.Unlock()
	// A full disk is reported by the reservations.
	if err != nil && !vfs.CannotWrite(err) && l.opts.Events.BackgroundError != nil {
		l.opts.Events.BackgroundError(fmt.Errorf("prepare commit log segment: %w", err))
	}
}

// zeroFill writes and syncs the zeros chunk by chunk, so that syncs of the log do not
// queue after many zeros.
func (l *Log) zeroFill(s *segment, to int64) error {
	for s.zeroedTo < to && !l.hurry.Load() {
		if s.zeroedTo > 0 {
			time.Sleep(zeroPause)
		}
		if err := s.zero(to); err != nil {
			return err
		}
		if err := s.file.Sync(); err != nil {
			return err
		}
	}
	return l.publish(s)
}
