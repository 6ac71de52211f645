package wal

import (
	"errors"
)

// Close writes and syncs everything and notes that the log ended in order, unless it must
// not write (see Refuse). Records appended meanwhile are refused. Close waits for the
// log's goroutines and is idempotent. It returns Err if the log had failed.
func (l *Log) Close() error {
	l.closing.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Log) close() error {
	l.mu.Lock()
	l.mu.closed = true
	l.roomChangedLocked()
	for l.mu.writing || (!l.mu.queue.empty() && l.Err() == nil) {
		if l.mu.writing {
			l.mu.changed.Wait()
			continue
		}
		l.leadLocked(false)
		l.mu.Lock()
	}
	l.mu.Unlock()
	close(l.stop)
	l.hurry.Store(true)
	l.background.Wait()
	l.mu.Lock()
	for l.mu.syncing {
		l.mu.changed.Wait() // for a caller of FlushOrSync
	}
	l.mu.Unlock()
	// From here on only this goroutine uses the files.
	err := l.Err()
	if err == nil && !l.suspended.Load() && !l.mayStayAsItIs() {
		if err = l.closeSynced(); err != nil {
			l.fail(err)
			err = l.Err()
		}
	}
	l.mu.Lock()
	l.mu.stopped = true
	wakers := [][]Waker{l.mu.waiting, l.mu.awaiting}
	l.mu.waiting, l.mu.awaiting = nil, nil
	l.mu.Unlock()
	for _, ws := range wakers {
		wakeAll(ws)
	}
	return errors.Join(err, l.closeFiles())
}

// mayStayAsItIs reports whether the file system is read-only and the log is synced, so
// that Close need not write. Only the caller uses the log.
func (l *Log) mayStayAsItIs() bool {
	return l.untouchableLocked() && l.mu.sealed == nil && !l.mu.syncedAt.less(l.mu.active.address())
}

// closeSynced syncs what is written. Then it notes where the log ends: in a frame and,
// once that is synced, in the header. The frame tells recovery that everything before it
// was synced without an error; the header, that no tail is missing.
func (l *Log) closeSynced() error {
	if l.mu.sealed != nil || l.mu.syncedAt.less(l.mu.active.address()) {
		l.mu.Lock()
		l.mu.mustSync = true
		l.syncOnceLocked()
		l.mu.Unlock()
		if err := l.Err(); err != nil {
			return err
		}
	}
	if err := l.writeEmpty(FrameClose); err != nil {
		return err
	}
	a := l.mu.active
	if err := a.file.Truncate(a.off); err != nil {
		return err
	}
	if err := l.timedSync(a); err != nil {
		return err
	}
	closed := a.header
	closed.closed = a.off
	if _, err := a.file.WriteAt(closed.encode(), 0); err != nil {
		// A partly written header would make the whole segment unreadable.
		_, undoErr := a.file.WriteAt(a.header.encode(), 0)
		return errors.Join(err, undoErr)
	}
	return l.timedSync(a)
}

func (l *Log) closeFiles() error {
	var errs []error
	for _, s := range []*segment{l.mu.sealed, l.mu.active} {
		if s != nil {
			errs = append(errs, s.file.Close())
		}
	}
	if l.mu.prepared != nil && (l.Err() != nil || l.untouchableLocked()) {
		errs = append(errs, l.mu.prepared.file.Close()) // another segment may have its name by now
	} else if l.mu.prepared != nil {
		errs = append(errs, l.mu.prepared.discard(l.opts.FS))
	}
	return errors.Join(errs...)
}
