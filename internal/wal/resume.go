package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/vfs"
)

// A log whose recovery cannot write, because the disk is full or its file system is
// read-only, is suspended: it was read and replayed, Append refuses records, and its
// files hold the same records as before. A power cut may still take the part of its end
// that was not synced, so WaitSynced fails. Resume ends the suspension.

// errTookOver: recovery failed after the log may have continued in its new segment, so
// recovery has to start over.
var errTookOver = errors.New("recovery was interrupted")

// begin makes a log that was just read ready to append to. If the file system takes no
// bytes, it suspends the log.
func (l *Log) begin(s *recoveryScan) error {
	err := l.takeOver(s)
	if err == nil {
		l.background.Go(l.syncLoop)
		return nil
	}
	err = fmt.Errorf("recover commit log: %w", errors.Join(err, l.undo(err)))
	if !vfs.CannotWrite(err) || errors.Is(err, errTookOver) || l.opts.Fresh {
		return err
	}
	l.mu.suspended, l.mu.space.refused = s, err
	l.suspended.Store(true)
	return nil
}

// undo closes the segment that takeOver has begun, if any, and removes it, so that
// another attempt finds the same files.
func (l *Log) undo(cause error) error {
	a := l.mu.active
	l.mu.active = nil
	switch {
	case a == nil:
		return nil
	case errors.Is(cause, errTookOver):
		return a.file.Close()
	}
	return errors.Join(a.discard(l.opts.FS), l.opts.FS.SyncDir(l.opts.Dir))
}

// Suspended returns why an open log refuses all records until Resume succeeds, nil if it
// does not.
func (l *Log) Suspended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.suspended == nil {
		return nil
	}
	return l.mu.space.refused
}

// Resume tries again to make a suspended log ready, and returns why that still fails. For
// any other log it does nothing. It must not run concurrently with itself or with Close.
func (l *Log) Resume() error {
	l.mu.Lock()
	s, nextNum := l.mu.suspended, l.mu.nextNum
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	again := newLog(l.opts, s) // l is unchanged until this succeeds
	again.mu.nextNum = nextNum
	err := again.takeOver(s)
	if err != nil {
		err = errors.Join(err, again.undo(err))
	}
	if errors.Is(err, errTookOver) {
		l.fail(fmt.Errorf("recover commit log: %w", err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.nextNum = again.mu.nextNum
	l.mu.space.refused = err
	if err != nil {
		return err
	}
	l.mu.space.refused = again.mu.space.refused
	l.mu.active, l.mu.low, l.mu.live = again.mu.active, again.mu.low, again.mu.live
	l.mu.syncedAt, l.mu.marked = again.mu.syncedAt, again.mu.marked
	l.mu.suspended = nil
	l.suspended.Store(false)
	l.background.Go(l.syncLoop)
	return nil
}

func (l *Log) suspendedError(cause error) error {
	return l.refusal(fmt.Errorf("the commit log is suspended until its recovery can write: %w", cause))
}
