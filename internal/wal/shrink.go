package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// shrinkAt is the size, as one part in so many of SegmentBytes, from which an active
// segment with nothing but flushed records is worth leaving: 4 MiB by default.
const shrinkAt = 16

// Shrink lets an idle log take little space: if all records of the active segment have
// numbers of at most flushed, and it or the segment prepared after it is large, it goes
// on in a new, small one. Reclaim then deletes the old one. Otherwise it gives back what
// the active segment has beyond what a log that was just opened reserves. If the log
// is not idle or is suspended, it does nothing.
//
// Errors: those of removing the prepared segment or of making the new one, as on a full
// disk, after which the log goes on as it was; and Err.
func (l *Log) Shrink(flushed kv.SeqNum) error {
	l.mu.Lock()
	if l.mu.active == nil || l.busyLocked() || l.Err() != nil {
		l.mu.Unlock()
		return l.Err()
	}
	l.mu.space.rested = l.mu.end
	if !l.shrinkableLocked(flushed) {
		return l.cutIdleLocked()
	}
	l.mu.writing = true
	// No other successor is prepared while this goroutine decides on one.
	l.mu.preparedFor = l.mu.active.header.num
	prepared := l.mu.prepared
	l.mu.prepared = nil
	h := l.nextHeaderLocked()
	l.mu.Unlock()
	err := l.discardPrepared(prepared)
	var next *segment
	if err == nil {
		next, err = createSegment(l.opts.FS, l.opts.Dir, h)
	}
	var failure error
	if err == nil {
		failure = l.goOnIn(next)
	}
	l.mu.Lock()
	l.releaseLocked()
	l.mu.Unlock()
	if failure != nil {
		l.fail(failure)
		return l.Err()
	}
	return err
}

// goOnIn rotates to a segment that was created and is not durable yet. The caller has the
// writing role.
func (l *Log) goOnIn(next *segment) error {
	if err := l.publish(next); err != nil {
		return fmt.Errorf("create commit log segment: %w", errors.Join(err, next.discard(l.opts.FS)))
	}
	l.mu.Lock()
	l.mu.prepared = next
	l.mu.Unlock()
	return l.rotate()
}

// shrinkableLocked reports whether the idle log is large for nothing.
func (l *Log) shrinkableLocked(flushed kv.SeqNum) bool {
	a := l.mu.active
	size := max(a.off, a.zeroedTo)
	if l.mu.prepared != nil {
		size += l.mu.prepared.zeroedTo
	}
	return a.inUse() && a.last <= flushed && size > l.opts.SegmentBytes/shrinkAt
}

// cutIdleLocked cuts what the idle log has reserved for a fast one. It unlocks mu.
func (l *Log) cutIdleLocked() (err error) {
	if l.roomLocked() > 2*l.aheadLocked() || l.mu.space.leftover {
		l.mu.writing = true
		l.mu.Unlock()
		_, err = l.cutReserved()
		l.mu.Lock()
		l.releaseLocked()
	}
	l.mu.Unlock()
	return err
}

// discardPrepared removes a prepared segment, if there is one. The removal is durable
// before another segment takes its place: recovery must not find two successors of one
// segment.
func (l *Log) discardPrepared(s *segment) error {
	if s == nil {
		return nil
	}
	err := s.discard(l.opts.FS)
	if err == nil {
		err = l.opts.FS.SyncDir(l.opts.Dir)
	}
	if err != nil {
		return fmt.Errorf("remove prepared commit log segment: %w", err)
	}
	return nil
}
