package wal

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Reclaim deletes the oldest segments whose records all have numbers of at most flushed.
// The active segment stays, and while there is a Hold all do. With Options.Archive those
// stay too that Archived has not named.
//
// Before it deletes the first one, the log notes, durably, which segment is the lowest
// that must exist: this tells a missing segment from a reclaimed one. Segments are
// deleted one by one, lowest first, so that a crash leaves no gap. Errors: Err,
// kv.ErrClosed, ErrNoRoomYet, and that of a removal, which the next call tries again; but
// after a failed sync of the directory Reclaim deletes nothing any more.
func (l *Log) Reclaim(flushed kv.SeqNum) error {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	if l.reclaimErr != nil {
		return l.reclaimErr
	}
	if l.suspended.Load() {
		return nil
	}
	l.mu.Lock()
	dead, low := l.reclaimableLocked(flushed)
	l.mu.Unlock()
	if len(dead) == 0 {
		return nil
	}
	if err := l.raiseLow(low); err != nil {
		return err
	}
	for _, s := range dead {
		// An earlier attempt that failed may have removed it.
		if err := vfs.RemoveIfThere(l.opts.FS, segmentName(l.opts.Dir, s.num)); err != nil {
			return fmt.Errorf("reclaim commit log segment: %w", err)
		}
		l.mu.Lock()
		l.mu.live = l.mu.live[1:]
		l.mu.Unlock()
		if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
			l.reclaimErr = fmt.Errorf("reclaim commit log segment: %w", err)
			if vfs.IsReadOnly(err) {
				l.fail(l.reclaimErr) // no later Reclaim can succeed, and the owner must not wait for one
			}
			return l.reclaimErr
		}
		if l.opts.Events.SegmentRemoved != nil {
			l.opts.Events.SegmentRemoved(event.Segment{Num: s.num, Bytes: s.bytes})
		}
	}
	return nil
}

// reclaimableLocked returns the segments that can be deleted, and the number of the
// segment that is then the lowest, whose start frame is synced.
func (l *Log) reclaimableLocked(flushed kv.SeqNum) (dead []liveSegment, low uint64) {
	n := 0
	for l.mu.holds == 0 && n < len(l.mu.live) && l.mu.live[n].last <= flushed && l.mu.live[n].num < l.mu.syncedAt.segment &&
		(!l.opts.Archive || l.mu.live[n].num <= l.mu.archived) {
		n++
	}
	low = l.mu.active.header.num
	if n < len(l.mu.live) {
		low = l.mu.live[n].num
	}
	return append(dead, l.mu.live[:n]...), low
}

// raiseLow notes durably that low is the lowest segment that must exist.
func (l *Log) raiseLow(low uint64) error {
	l.mu.Lock()
	if l.mu.low >= low {
		l.mu.Unlock() // noted by an earlier call that could not delete all of them
		return nil
	}
	if !l.takeRoleLocked() {
		l.mu.Unlock()
		if err := l.Err(); err != nil {
			return err
		}
		return kv.ErrClosed
	}
	before := l.mu.low
	l.mu.low = low
	l.mu.Unlock()
	at, err := l.mark()
	if err == nil {
		err = l.Err()
	}
	if err == nil {
		err = l.await(context.Background(), func() bool { return !l.mu.syncedAt.less(at) })
	}
	if err != nil {
		l.mu.Lock()
		l.mu.low = before
		l.mu.Unlock()
	}
	return err
}
