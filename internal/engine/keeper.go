package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// keep looks after the places of the files, the disk, the clock, leases and the log every
// second, and after the log also after each flush.
func (e *Engine) keep() {
	defer e.events.Guard()
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.keeper.stop:
			return
		case <-e.log.Failed():
			e.fail(e.log.Err())
			return
		case <-e.disk.wake:
			e.watchDisk(false)
		case <-tick.C:
			e.checkPlaces()
			if e.misplaced.Load() {
				continue // the log says why
			}
			e.watchDisk(true)
			e.endLeases(time.Now())
			if !e.disk.unwritable.Load() {
				e.keepClock()
				e.keepSpace(time.Now())
			}
		case <-e.keeper.wake:
		}
		if !e.disk.unwritable.Load() {
			e.trimLog()
		}
	}
}

// keepReading looks after the leases of a store that is only read.
func (e *Engine) keepReading() {
	defer e.events.Guard()
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.keeper.stop:
			return
		case <-tick.C:
			e.endLeases(time.Now())
		}
	}
}

// endLeases ends the leases that are over, and has idle scans let go of their files.
func (e *Engine) endLeases(now time.Time) {
	e.snapshots.expire(now)
	e.scans.rest(now)
}

func (e *Engine) wakeKeeper() {
	select {
	case e.keeper.wake <- struct{}{}:
	default:
	}
}

// keepClock lets the clock run on. If it cannot, the clock will stand still.
func (e *Engine) keepClock() {
	switch err := e.clock.keep(); {
	case err == nil:
	case vfs.CannotWrite(err):
		e.spaceRefused(err)
	default:
		e.backgroundError(err)
	}
}

// trimLog gives back log segments that are needed neither for what is not in tables yet
// nor, within bounds, for the names of recent writes. On a full disk on which clients
// delete, names keep no segment: the space is what the clients ask for, and a name that a
// crash then takes is answered with kv.ErrUncertain. If too much log is left, trimLog asks
// the partition that holds it back to flush.
func (e *Engine) trimLog() {
	// First the visible number: a partition that then has nothing unflushed has
	// flushed everything up to it.
	flushed := e.sequencer.Visible()
	lagging := -1
	for i, p := range e.partitions {
		if low, ok := p.UnflushedFrom(); ok && low-1 < flushed {
			flushed, lagging = low-1, i
		}
	}
	named := e.keeper.span.oldest(time.Now(), e.sequencer.Visible())
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
	if lagging >= 0 && e.log.Stats().LiveBytes > e.opts.LogBytes {
		e.partitions[lagging].Seal()
	}
}
