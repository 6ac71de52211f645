package wal

import (
	"fmt"
)

// Release gives back the space that the log has reserved or filled with zeros and does
// not need now: the segment prepared for later, and what the active one has beyond the
// queued records and room for a few more. It needs no space itself, so it works on a full
// disk. It reports whether there was something to give back. It does nothing while the
// log writes, or if it is suspended.
//
// Errors: those of the file system; the log continues to work after them.
//
// If all, the log keeps none for deletes, and refuses what it gets until Reserve succeeds.
func (l *Log) Release(all bool) (gave bool, err error) {
	l.mu.Lock()
	if l.mu.active == nil || l.busyLocked() || !l.takeRoleLocked() {
		l.mu.Unlock()
		return false, l.Err()
	}
	prepared := l.mu.prepared
	l.mu.prepared = nil
	l.mu.preparedFor = l.mu.active.header.num
	l.mu.Unlock()
	err = l.discardPrepared(prepared)
	gave = prepared != nil
	if err == nil {
		var cut bool
		cut, err = l.cutReserved(all)
		gave = gave || cut
	}
	l.mu.Lock()
	l.releaseLocked()
	l.mu.Unlock()
	return gave, err
}

// busyLocked reports whether the log writes, rotates or creates a segment, or is closed.
func (l *Log) busyLocked() bool {
	return !l.mu.queue.empty() || l.mu.writing || l.mu.preparing || l.mu.sealed != nil || l.mu.closed
}

// cutReserved ends the space of the active segment after the queued records, the slack
// and, unless all, what is reserved ahead, and reports whether the segment had more. The
// caller has the writing role.
//
// It truncates the file there, in the zeros, so that the space that the segment keeps is
// never free for other processes. A segment ends in zeros anyway.
func (l *Log) cutReserved(all bool) (cut bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.mu.active
	var ahead int64
	if !all {
		ahead = l.aheadLocked()
	}
	to := min(a.off+slackBytes+l.mu.space.charged+ahead, a.spaceEnd())
	if l.mu.space.reserving || to == a.spaceEnd() && !l.mu.space.leftover {
		return false, nil
	}
	l.mu.space.reserving = true // so that no other goroutine reserves
	// From here on Append admits what fits before the cut.
	a.reservedTo, a.zeroedTo, a.extendedTo = min(a.reservedTo, to), min(a.zeroedTo, to), min(a.extendedTo, to)
	l.mu.Unlock()
	err = a.file.Truncate(to)
	l.mu.Lock()
	if err == nil {
		a.reservedTo, l.mu.space.leftover = to, false
	} else {
		err = fmt.Errorf("release reserved space of the commit log: %w", err)
	}
	l.mu.space.reserving = false
	l.roomChangedLocked()
	return err == nil, err
}
