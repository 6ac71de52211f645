package wal

import (
	"fmt"
	"time"
)

// workUnits is how many units a sync may have served for the goroutine that synced to
// apply them itself, if nothing waits for the next sync. More is better shared by several
// goroutines.
const workUnits = 512

func (l *Log) pokeSyncer() { signal(l.poke).Wake() }

// syncLoop is the syncing goroutine. It ends with Close.
func (l *Log) syncLoop() {
	defer l.opts.Events.Guard()
	idle := time.NewTimer(time.Hour)
	idle.Stop()
	defer idle.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.poke:
		case <-idle.C:
			l.markIfIdle()
		}
		l.syncWhileNeeded()
		if wait := l.untilMark(); wait > 0 {
			idle.Reset(wait)
		}
	}
}

// syncNeededLocked reports whether something that is written must be synced.
func (l *Log) syncNeededLocked() bool {
	return l.mu.mustSync || min(l.mu.syncTo, l.Written()) > l.Synced()
}

// workLeftLocked reports whether the goroutine with the syncing role has something to do.
func (l *Log) workLeftLocked() bool {
	return l.Err() == nil && (l.syncNeededLocked() || !l.mu.writing && !l.mu.queue.empty())
}

// syncWhileNeeded writes and syncs until there is nothing left to do. It does nothing if
// another goroutine has the syncing role.
func (l *Log) syncWhileNeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.syncing {
		return
	}
	l.mu.syncing = true
	for l.workLeftLocked() {
		before := l.mu.gather.synced
		l.syncOnceLocked()
		l.gatherLocked(l.mu.gather.synced - before)
	}
	l.mu.syncing = false
	l.mu.changed.Broadcast()
}

// leadSyncLocked writes and syncs once, on the goroutine of a caller that waits for one
// of the queued records, and leaves records that came meanwhile to the syncing goroutine
// (L4). No other goroutine has the syncing role. It unlocks mu meanwhile.
func (l *Log) leadSyncLocked() {
	l.mu.syncing = true
	l.syncOnceLocked()
	l.mu.syncing = false
	l.mu.changed.Broadcast()
	l.pokeIfDueLocked(l.workLeftLocked())
}

// syncOnceLocked writes what is queued, unless another goroutine writes, and then syncs
// everything that is written, if needed. Errors show in Err. The caller has the syncing
// role. It unlocks mu meanwhile.
func (l *Log) syncOnceLocked() {
	defer l.opts.Events.Guard()
	l.writeQueuedLocked()
	if l.Err() != nil || !l.syncNeededLocked() {
		return
	}
	sealed, active := l.mu.sealed, l.mu.active
	at, pos, next, written := active.address(), l.Written(), l.mu.last+1, l.mu.gather.written
	wakers := l.mu.waiting
	l.mu.waiting, l.mu.mustSync = l.spare, false
	l.spare = nil
	timed := l.mu.timed
	l.mu.timed = nil
	l.prepareIfWantedLocked()
	l.mu.Unlock()

	if err := l.syncSegments(sealed, active); err != nil {
		l.fail(err, wakers)
		l.mu.Lock()
		return
	}

	l.mu.Lock()
	served := written - l.mu.gather.synced
	if l.Err() == nil {
		for _, c := range timed {
			c.Synced.Set(l.mu.lastSync)
		}
		l.synced.Store(uint64(pos))
		l.mu.syncedAt = at
		l.mu.stats.SyncUnits.Record(served)
		l.mu.gather.synced = written
		l.mu.syncedNext = max(l.mu.syncedNext, next)
	}
	if sealed != nil {
		l.mu.sealed = nil
		l.mu.changed.Broadcast()
	}
	awaiting := l.mu.awaiting
	l.mu.awaiting = nil
	tell := wakeAll
	if served <= workUnits && !l.workLeftLocked() {
		tell = runAllReady
	}
	l.mu.Unlock()
	tell(wakers)
	wakeAll(awaiting)
	clear(wakers)
	l.spare = wakers[:0]
	l.mu.Lock()
}

// writeQueuedLocked writes the frames that are queued, unless another goroutine writes.
// It stops before a second rotation, which would wait for a sync.
func (l *Log) writeQueuedLocked() {
	if l.mu.writing {
		return
	}
	l.mu.writing = true
	for n := len(l.mu.queue.frames); n > 0 && l.mu.sealed == nil && l.writeNextLocked(); n-- {
	}
	l.mu.writing = false
	l.mu.changed.Broadcast()
}

// syncSegments syncs the segment that a rotation left, if any, then the active one: a
// record is never synced before those that precede it.
func (l *Log) syncSegments(sealed, active *segment) error {
	if sealed != nil {
		if err := l.timedSync(sealed); err != nil {
			return err
		}
		if err := sealed.file.Close(); err != nil {
			return fmt.Errorf("close commit log: %w", err)
		}
	}
	return l.timedSync(active)
}

// timedSync syncs a segment and counts it. An error is final: the kernel may have dropped
// what it could not write, and a second sync would not report that.
func (l *Log) timedSync(s *segment) error {
	begin := time.Now()
	err := s.file.Sync()
	l.countSync(begin, time.Since(begin))
	if err != nil {
		return fmt.Errorf("sync commit log: %w", err)
	}
	return nil
}

func (l *Log) countSync(begin time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.lastSync = begin.Add(took)
	l.mu.stats.SyncMicros.Record(uint64(took.Microseconds()))
	l.mu.stats.SyncTime += took
	l.mu.stats.SyncMax = max(l.mu.stats.SyncMax, took)
	l.mu.gather.learn(took)
}
