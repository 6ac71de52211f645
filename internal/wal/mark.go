package wal

import (
	"errors"
	"time"
)

// markNeededLocked reports whether frames were written since the last mark.
func (l *Log) markNeededLocked() bool {
	return l.Err() == nil && l.mu.marked.less(l.mu.active.address())
}

// untilMark returns the time after which the idle mark may be due; 0: no mark is needed.
func (l *Log) untilMark() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.timing = l.markNeededLocked()
	if !l.mu.timing {
		return 0
	}
	// If it is due already, other work delays it: look again in a while.
	return max(l.opts.idleMark/16, l.opts.idleMark-time.Since(l.mu.lastWrite))
}

// markIfIdle syncs everything and then writes a mark, which is synced too, if nothing was
// written for idleMark. From then on damage before the mark is told from a torn tail. It
// runs on the syncing goroutine.
func (l *Log) markIfIdle() {
	if !l.idle() {
		return
	}
	l.mu.Lock()
	if l.untouchableLocked() {
		l.mu.marked = l.mu.active.address() // try again after the next write
		l.mu.Unlock()
		return
	}
	l.mu.mustSync = l.mu.mustSync || l.mu.syncedAt.less(l.mu.active.address())
	l.mu.Unlock()
	l.syncWhileNeeded()
	l.mu.Lock()
	if l.mu.writing || !l.mu.queue.empty() || l.mu.syncedAt != l.mu.active.address() || !l.takeRoleLocked() {
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if _, err := l.mark(); err != nil && !errors.Is(err, ErrNoRoomYet) {
		l.mu.Lock()
		l.mu.marked = l.mu.active.address() // try again after the next write
		l.mu.Unlock()
	}
}

func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.markNeededLocked() && time.Since(l.mu.lastWrite) >= l.opts.idleMark
}

// mark writes a mark, returns the address after it and has it synced soon. It gives up
// the writing role, which the caller has. Errors: no space for the mark, or none yet
// (ErrNoRoomYet). An error of the write shows in Err.
func (l *Log) mark() (address, error) {
	before := l.mu.active.address()
	full := l.reserveMark()
	var err error
	if full == nil {
		err = l.writeEmpty(FrameMark)
	}
	l.mu.Lock()
	at := l.mu.active.address()
	if full == nil {
		l.mu.mustSync = true
		if l.mu.syncedAt == before {
			l.mu.marked = at
		}
	}
	l.releaseLocked()
	l.mu.Unlock()
	if err != nil {
		l.fail(err)
	}
	return at, full
}
