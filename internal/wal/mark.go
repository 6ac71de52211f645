package wal

import (
	"errors"
	"time"
)

// markNeededLocked reports whether frames were written since the last mark.
func (l *Log) markNeededLocked() bool {
	return l.Err() == nil && l.mu.marked.less(l.mu.active.address())
}

// untilMark returns after how long the idle mark may be due; 0: it is not needed.
func (l *Log) untilMark() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.timing = l.markNeededLocked()
	if !l.mu.timing {
		return 0
	}
	// When it is due already, something else is under way: look again in a while.
	return max(l.opts.IdleMark/16, l.opts.IdleMark-time.Since(l.mu.lastWrite))
}

// markIfIdle syncs everything and then writes a mark, which is synced too, if
// nothing was written for a while. From then on damage of what lies before the
// mark is told from a torn tail. It runs on the syncing goroutine.
func (l *Log) markIfIdle() {
	if !l.idle() {
		return
	}
	l.mu.Lock()
	if l.untouchableLocked() {
		l.mu.marked = l.mu.active.address() // not before something is written again
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
		l.mu.marked = l.mu.active.address() // not before something is written again
		l.mu.Unlock()
	}
}

func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.markNeededLocked() && time.Since(l.mu.lastWrite) >= l.opts.IdleMark
}

// mark writes a mark, returns the address behind it and has it synced soon. It
// gives up the writing role, which the caller has. An error is that of having no space
// for the mark, or none yet (ErrNoRoomYet); that of writing it shows in Err.
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
