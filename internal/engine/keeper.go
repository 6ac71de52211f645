package engine

import (
	"fmt"
	"time"
)

// keep looks after the places of the files, the disk, the clock, leases and the log: every second, and
// after each flush after the log.
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
		case <-tick.C:
			e.checkPlaces()
			if e.misplaced.Load() {
				continue // the log says why
			}
			e.watchDisk()
			e.keepClock()
			e.snapshots.expire(time.Now())
			e.scans.rest(time.Now())
			e.keepSpace(time.Now())
		case <-e.keeper.wake:
		}
		e.trimLog()
	}
}

func (e *Engine) wakeKeeper() {
	select {
	case e.keeper.wake <- struct{}{}:
	default:
	}
}

// watchDisk makes the store read-only while the disk is nearly full, before a
// write of the log would fail for good. Writes resume when a quarter more than
// the mark is free.
func (e *Engine) watchDisk() {
	usage, err := e.opts.FS.Usage(e.dir)
	if err != nil {
		e.backgroundError(fmt.Errorf("look how full the disk is: %w", err))
		return
	}
	e.diskFree.Store(usage.Free)
	low := e.opts.LowDiskBytes
	if e.readOnly.Load() {
		low += low / 4
	}
	e.readOnly.Store(usage.Free < low)
}

// keepClock lets the clock run on. If it cannot, the clock will stand still.
func (e *Engine) keepClock() {
	if err := e.clock.keep(); err != nil {
		e.backgroundError(err)
	}
}

// trimLog gives back log segments that nobody needs, neither for what is not in
// tables yet nor, within bounds, for the names of recent writes. If too much log is left, it
// asks the partition that holds it back to flush.
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
	if named := e.keeper.span.oldest(time.Now(), e.sequencer.Visible()); e.log.Stats().LiveBytes <= nameSpanSegments*e.opts.SegmentBytes {
		flushed = min(flushed, named)
	}
	e.shrinkLog(flushed, time.Now())
	if err := e.log.Reclaim(flushed); err != nil {
		e.backgroundError(fmt.Errorf("give log segments back: %w", err))
		return
	}
	if lagging >= 0 && e.log.Stats().LiveBytes > e.opts.LogBytes {
		e.partitions[lagging].Seal()
	}
}
