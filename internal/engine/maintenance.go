package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// maintain is the maintenance loop. Every second it checks that the files are in their places,
// checks the disk, renews the clock's line, ends leases, forgets old request ids, flushes old
// memtables and trims the log. It trims the log after each flush too.
func (e *Engine) maintain() {
	defer e.events.Guard()
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	full := e.diskFull()
	for {
		select {
		case <-e.maintenance.stop:
			return
		case <-e.log.Failed():
			e.fail(e.log.Err())
			return
		case <-e.disk.wake:
			e.watchDisk(false)
		case <-tick.C:
			e.checkPlaces()
			if e.misplaced.Load() {
				continue // the log has failed, with the reason
			}
			e.watchDisk(true)
			e.endLeases(time.Now())
			full = e.endCheckpoints(full)
			trimRequestIDs(e.own.coordinators)
			if !e.disk.unwritable.Load() {
				e.keepClock()
				e.keepSpace(time.Now())
			}
		case <-e.maintenance.wake:
		}
		if !e.disk.unwritable.Load() {
			e.trimLog()
		}
	}
}

// endCheckpoints ends the checkpoints if the disk has become full: they keep what would be freed.
// One that begins while the disk is full lasts until clients delete, so that a store on a full
// disk can be backed up. It returns whether the disk is full.
func (e *Engine) endCheckpoints(before bool) (full bool) {
	if full = e.diskFull(); full && !before || e.clientsFreeSpace() {
		e.checkpoints.end(errCheckpointEnded)
	}
	return full
}

// maintainReadOnly is the maintenance loop of a store that is opened read-only: it ends leases.
func (e *Engine) maintainReadOnly() {
	defer e.events.Guard()
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.maintenance.stop:
			return
		case <-tick.C:
			e.endLeases(time.Now())
		}
	}
}

// endLeases ends the leases whose time is over, and makes idle scans release their files.
func (e *Engine) endLeases(now time.Time) {
	e.snapshots.expire(now)
	e.scans.rest(now)
}

// trimRequestIDs forgets the request ids that have left the window.
func trimRequestIDs(coordinators []*commit.Coordinator) {
	for _, c := range coordinators {
		for c.TrimRequestIDs() {
		}
	}
}

func (e *Engine) wakeMaintenance() {
	select {
	case e.maintenance.wake <- struct{}{}:
	default:
	}
}

// keepClock renews the clock's line. If that fails, the clock stops at its bound.
func (e *Engine) keepClock() {
	if err := e.clock.keep(); err != nil {
		e.upkeepFailed(err)
	}
}

// upkeepFailed reports an error of the maintenance loop that a later attempt may not meet.
func (e *Engine) upkeepFailed(err error) {
	if vfs.CannotWrite(err) {
		e.spaceRefused(err)
	} else {
		e.backgroundError(err)
	}
}

// trimLog gives back log segments that hold neither unflushed writes nor, within bounds,
// request ids of recent writes. On a full disk on which clients delete, request ids keep no
// segment: the clients need the space, and a retry whose id a crash then takes gets
// kv.ErrUncertain. If too much log is left, trimLog makes the partition with the oldest
// unflushed write seal its memtable.
func (e *Engine) trimLog() {
	// The visible number is read first: a partition that has nothing unflushed after that
	// has flushed everything up to it.
	flushed := e.sequencer.Visible()
	lagging := -1
	for i, p := range e.partitions {
		if low, ok := p.UnflushedFrom(); ok && low-1 < flushed {
			flushed, lagging = low-1, i
		}
	}
	named := e.maintenance.span.oldest(time.Now(), e.sequencer.Visible())
	if e.log.Stats().LiveBytes <= nameSpanSegments*e.opts.SegmentBytes && !e.clientsFreeSpace() {
		flushed = min(flushed, named)
	}
	e.shrinkLog(flushed, time.Now())
	switch err := e.log.Reclaim(flushed); {
	case err == nil:
	case errors.Is(err, wal.ErrNoRoomYet):
		return // the next tick tries again
	case vfs.CannotWrite(err):
		e.spaceRefused(err)
		return
	default:
		e.backgroundError(fmt.Errorf("give log segments back: %w", err))
		return
	}
	if lagging >= 0 && e.log.BytesAfter(flushed) > e.opts.logBytes {
		e.partitions[lagging].Seal()
	}
}
