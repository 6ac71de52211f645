package wal

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// leadFrames is how many frames a caller of Flush writes before a goroutine of the log
	// takes over the writing role. Guessed: many enough that the hand-over costs little, few
	// enough that the caller is not held up.
	leadFrames = 8
	// leadBytes bounds likewise what these frames hold, but for the last one: the caller may
	// lead a partition, whose small writes wait for it.
	leadBytes = 1 << 20

	// maxUnsyncedBytes is how much may be unsynced before the log syncs by itself. A flush
	// of a memtable first has the log synced, and would wait for all of it. Measured with
	// buffered puts of 1 KiB and 16 threads: the longest put took 38 to 41 ms instead of 68
	// to 90, at 0.92 to 1.17 times as many puts a second.
	maxUnsyncedBytes = 8 << 20

	// extendAfter is how much must be unsynced before the log extends the segment by zeros
	// ahead of the frames. A sync writes these too, so a log that is synced often, or seldom
	// written to, does without.
	extendAfter = 256 << 10
	// extendFor is the longest frame for which the segment is extended. For longer ones the
	// file system allocates memory and space in large pieces anyway.
	extendFor = zeroWrite / 2

	// deferBytes is how much the queue holds back during a sync, if no caller waits for the
	// write itself: one larger frame then serves all of it.
	deferBytes = 1 << 20
)

// Flush has everything appended before written, and synced if its durability asks for
// that. The caller writes on its own goroutine, with two exceptions. If another goroutine
// writes, that one writes these records too; Flush then returns at once, unless
// maxQueuedBytes are queued, which bounds the memory of the log. If a sync runs, fewer
// than deferBytes are queued and all of these wait for a sync, Flush returns at once, and
// they are written before the next sync.
//
// Write errors show in Err. Flush does not wait for a sync.
func (l *Log) Flush() {
	l.mu.Lock()
	for l.Err() == nil && !l.mu.queue.empty() {
		if !l.mu.writing {
			if l.mu.syncing && l.mu.queue.bytes < deferBytes && !l.mu.queue.urgent() {
				l.mu.queue.hold()
				break
			}
			l.leadLocked(true)
			return
		}
		if l.mu.queue.bytes < maxQueuedBytes {
			break
		}
		l.mu.changed.Wait()
	}
	l.mu.Unlock()
}

// FlushBeside is Flush for a caller that waits for none of the records: the syncing goroutine writes
// them, so the caller does not wait for the disk.
func (l *Log) FlushBeside() { l.pokeSyncer() }

// leadTime is how long recent syncs may have taken for a caller of FlushOrSync to sync
// itself. Guessed: above what healthy disks take, below the deadlines of callers.
const leadTime = 5 * time.Millisecond

// FlushOrSync has everything appended before written and synced as its durability asks.
// It is for a caller that waits for one of these records, and saves waking another
// goroutine for it:
//
//   - A record that waits for the write alone is written on this goroutine, unless
//     another one is writing.
//   - Records that wait for a sync are written and synced on this goroutine if no other
//     one writes or syncs, and recent syncs took at most leadTime. Otherwise the syncing
//     goroutine does it, and FlushOrSync returns at once.
//
// If a quick disk begins to hang, one caller at a time cannot give up before its write or
// sync returns.
func (l *Log) FlushOrSync() {
	l.mu.Lock()
	switch {
	case l.Err() != nil || l.mu.queue.empty() || l.mu.writing:
	case l.mu.syncing && !l.mu.queue.urgent():
		l.mu.queue.hold()
	case l.mu.syncTo > l.Written() && !l.mu.queue.urgent():
		if lately := l.mu.gather.typical; 0 < lately && lately <= leadTime && !l.mu.closed {
			l.leadSyncLocked()
		} else {
			l.pokeSyncer()
		}
	default:
		l.leadLocked(true)
		return
	}
	l.mu.Unlock()
}

// leadBeside starts a goroutine that takes over the writing role and writes all frames.
func (l *Log) leadBeside() {
	l.background.Go(func() {
		defer l.opts.Events.Guard()
		l.mu.Lock()
		l.leadLocked(false)
	})
}

// leadLocked takes the writing role and writes frames until none is left. A caller that is
// to be relieved stops at leadFrames or leadBytes: then another goroutine takes over the
// role. It unlocks mu.
func (l *Log) leadLocked(relieved bool) {
	l.mu.writing = true
	begin := l.Written()
	for n := 0; ; n++ {
		if relieved && (n == leadFrames || l.Written()-begin >= leadBytes) && !l.mu.queue.empty() {
			l.leadBeside()
			break // the role goes with it
		}
		if !l.writeNextLocked() {
			l.releaseLocked()
			break
		}
	}
	l.mu.Unlock()
}

// releaseLocked gives up the writing role. It wakes the syncing goroutine if what was
// written must be synced, or if frames are left in the queue (L4).
func (l *Log) releaseLocked() {
	l.mu.writing = false
	l.mu.changed.Broadcast()
	l.pokeIfDueLocked(!l.mu.syncing && l.syncNeededLocked() || !l.mu.queue.empty())
}

// pokeIfDueLocked wakes the syncing goroutine if there is work for it, or if the timer of
// the idle mark should start.
func (l *Log) pokeIfDueLocked(work bool) {
	markNeeded := !l.mu.timing && l.markNeededLocked()
	if markNeeded {
		l.mu.timing = true
	}
	if markNeeded || work {
		l.pokeSyncer()
	}
}

// writeNextLocked writes the oldest frame. It returns false if there is none or the log
// has failed. The caller has the writing role. It unlocks mu while it writes.
func (l *Log) writeNextLocked() bool {
	defer l.opts.Events.Guard()
	if l.Err() != nil {
		return false
	}
	f := l.mu.queue.take()
	if f == nil {
		return false
	}
	l.mu.Unlock()
	f.release()
	err := l.writeFrame(f)
	l.mu.Lock()
	l.mu.space.charged -= f.charged
	if err == nil && l.Err() == nil {
		l.tellWrittenLocked(f.timed)
		l.written.Store(uint64(f.end))
		l.mu.waiting = append(l.mu.waiting, f.late...)
		l.mu.gather.written += uint64(f.asked)
		l.mu.stats.FrameRecords.Record(uint64(f.records))
		l.mu.stats.FrameUnits.Record(uint64(f.units))
		l.mu.stats.FrameBytes.Record(uint64(len(f.buf)))
		if uint64(f.end)-l.synced.Load() >= maxUnsyncedBytes {
			l.mu.mustSync = true
		}
		if l.syncNeededLocked() && !l.mu.syncing {
			l.pokeSyncer()
		}
	}
	l.mu.Unlock()
	if err != nil {
		l.fail(err)
	}
	wakeAll(f.early)
	if l.Err() != nil {
		wakeAll(f.late)
	}
	l.mu.Lock()
	l.mu.queue.recycle(f)
	return true
}

// tellWrittenLocked sets in the traces when the records were written. The caller has the
// writing role and has just written them.
func (l *Log) tellWrittenLocked(records []timed) {
	for _, r := range records {
		r.trace.Written.Set(l.mu.lastWrite)
		if r.sync {
			l.mu.timed = append(l.mu.timed, r.trace)
		}
	}
}

// writeFrame writes a frame of records, in the next segment if it does not fit into the
// active one. The caller has the writing role.
func (l *Log) writeFrame(f *logFrame) error {
	if l.rotationDue(frameBytes(len(f.buf) - frameHeaderBytes)) {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	header := l.frameHere(FrameData)
	header.records, header.next = f.records, f.last+1
	header.off = l.mu.active.off
	f.buf = sealFrame(f.buf, l.mu.active.header.id(), &header)
	return l.write(f.buf, f.last)
}

// frameHere describes a frame without records at the end of the active segment.
// The caller has the writing role.
func (l *Log) frameHere(kind FrameKind) frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	return frame{
		off: l.mu.active.off, kind: kind, low: l.mu.low, synced: l.mu.syncedAt,
		prev: l.mu.last, next: max(l.mu.last+1, l.mu.floor),
	}
}

// writeEmpty writes a frame without records. The caller has the writing role.
func (l *Log) writeEmpty(kind FrameKind) error {
	f := l.frameHere(kind)
	return l.write(emptyFrame(l.mu.active.header.id(), f), f.prev)
}

// write appends a frame to the active segment; last is the number of the last record up
// to its end. The caller has the writing role.
func (l *Log) write(b []byte, last kv.SeqNum) error {
	a := l.mu.active
	if l.Written()-l.Synced() >= extendAfter && len(b) <= extendFor {
		if to := a.off + int64(len(b)); to > a.extendedTo {
			l.mu.Lock()
			limit := a.spaceEnd()
			l.mu.Unlock()
			if err := a.extend(to, limit); err != nil {
				return fmt.Errorf("write commit log: %w", err)
			}
		}
	}
	if _, err := a.file.WriteAt(b, a.off); err != nil {
		return fmt.Errorf("write commit log: %w", err)
	}
	now := time.Now()
	l.mu.Lock()
	a.off += int64(len(b))
	a.last, l.mu.last = last, last
	l.mu.lastWrite = now
	l.mu.Unlock()
	return nil
}

// takeRoleLocked waits for the writing role. It reports false if the log has
// failed or is closed.
func (l *Log) takeRoleLocked() bool {
	for l.mu.writing && l.Err() == nil && !l.mu.closed {
		l.mu.changed.Wait()
	}
	if l.Err() != nil || l.mu.closed {
		return false
	}
	l.mu.writing = true
	return true
}
