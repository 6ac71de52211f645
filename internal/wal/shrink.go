package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// shrinkAt is the size, as one part in so many of SegmentBytes, above which an active
// segment with only flushed records is left: 4 MiB by default.
const shrinkAt = 16

// Shrink makes an idle log small. If all records of the active segment have numbers of at
// most flushed, and it or the segment prepared after it is large, the log continues in a
// new, small one, and Reclaim can delete the old one. Otherwise Shrink gives back what
// the active segment has beyond the reservation of a new log. If the log is not idle or
// is suspended, it does nothing.
//
// Errors: those of removing the prepared segment or of creating the new one, as on a full
// disk, after which the log works as before; and Err.
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
	// No other successor is prepared until this goroutine has created one.
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
	fatal := false
	if err == nil {
		fatal, err = l.goOnIn(next)
	}
	l.mu.Lock()
	l.releaseLocked()
	l.mu.Unlock()
	if fatal {
		l.fail(err)
		return l.Err()
	}
	return err
}

// goOnIn rotates to a segment that was created and is not durable yet. If the file system
// takes no writes and the segment could be removed again, the log works as before; any other
// error is fatal. The caller has the writing role.
func (l *Log) goOnIn(next *segment) (fatal bool, err error) {
	if err := l.publish(next); err != nil {
		removal := next.discard(l.opts.FS)
		fatal = removal != nil || !vfs.CannotWrite(err)
		return fatal, fmt.Errorf("create commit log segment: %w", errors.Join(err, removal))
	}
	l.mu.Lock()
	l.mu.prepared = next
	l.mu.Unlock()
	err = l.rotate()
	return err != nil, err
}

// shrinkableLocked reports whether the active segment of the idle log can be left and is
// worth leaving.
func (l *Log) shrinkableLocked(flushed kv.SeqNum) bool {
	a := l.mu.active
	size := max(a.off, a.zeroedTo)
	if l.mu.prepared != nil {
		size += l.mu.prepared.zeroedTo
	}
	return a.inUse() && a.last <= flushed && size > l.opts.SegmentBytes/shrinkAt
}

// cutIdleLocked cuts what the log reserved while it was busy. It unlocks mu.
func (l *Log) cutIdleLocked() (err error) {
	if l.roomLocked() > 2*l.aheadLocked() || l.mu.space.leftover {
		l.mu.writing = true
		l.mu.Unlock()
		_, err = l.cutReserved(false)
		l.mu.Lock()
		l.releaseLocked()
	}
	l.mu.Unlock()
	return err
}

// discardPrepared removes the prepared segment, if there is one. The removal is durable
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
