package engine

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Deleted, overwritten and expired entries take space in memtables, in files and in the
// log until it is reclaimed. While a store is written to, the sizes of memtables and
// tables trigger flushes and compactions (package compaction). For all other cases the
// maintenance loop flushes old memtables; in a store at rest compactions follow tighter
// bounds and the log shrinks. No writer waits for work in a store at rest, so that rests
// between its steps.

const (
	// restAfter is for how long less than restBytes must be written until a store is at
	// rest. Guessed: longer than the pauses of a load.
	restAfter = 10 * time.Second
	restBytes = 1 << 20
	// lookEvery is how often compactions are looked for even if nothing was flushed:
	// entries expire, and leases of snapshots end.
	lookEvery = 10 * time.Second

	// A memtable is flushed when it was not written to for flushAge, or for a third of
	// that if it has tombstones, since these hold space elsewhere. One that is written to
	// all the time is flushed at busyAge times that age, with tombstones at
	// busyTombstoneAge times.
	flushAge         = 30 * time.Second
	busyAge          = 20
	busyTombstoneAge = 2

	// agedShare is the part of the budget, one in so many, that keeps further memtables from being
	// sealed because of their age while sealed ones take it: partitions that were written to
	// together are not flushed together, after which no read of them is answered from memory.
	agedShare = 16
	// restTimes is how many times as long as it works a job rests in a store at rest. Guessed: a
	// quarter of a processor for each worker.
	restTimes = 3
)

// spaceState is the state of keepSpace. Used only by the maintenance loop.
type spaceState struct {
	memtables []memtableAge // by partition
	bytes     uint64        // written in all at the time busy
	busy      time.Time     // when restBytes more had last been written
	looked    time.Time     // when compactions were last looked for
	shrinks   time.Time     // when the log may next be asked to shrink
}

// memtableAge records when the active memtable of a partition was first seen, and when it
// was last seen to have changed.
type memtableAge struct {
	first, last    kv.SeqNum
	begun, changed time.Time
}

// keepSpace seals old memtables and looks for compactions.
func (e *Engine) keepSpace(now time.Time) {
	k := &e.maintenance.space
	if k.memtables == nil {
		k.memtables = make([]memtableAge, len(e.partitions))
		k.busy = now
	}
	var written uint64
	sealed := e.budget.sealed.Load()
	for i, p := range e.partitions {
		first, last, tombstones := p.ActiveMemtable()
		if k.memtables[i].due(now, first, last, tombstones) && sealed <= e.budget.limit/agedShare {
			sealed += e.budget.activeOf(p)
			p.Seal()
		}
		written += p.UserBytes()
	}
	if written-k.bytes >= restBytes {
		k.bytes, k.busy = written, now
	}
	rests := now.Sub(k.busy) >= restAfter
	begins := rests && !e.atRest.Swap(rests)
	if !rests {
		e.atRest.Store(false)
	}
	if begins || now.Sub(k.looked) >= lookEvery {
		k.looked = now
		for _, p := range e.partitions {
			e.scheduler.Ready(p)
		}
	}
}

// rests returns how many times as long as it works a flush or compaction of the scheduler rests: not
// at all if a caller may wait for it, or space on a full disk.
func (e *Engine) rests() int {
	if !e.atRest.Load() || e.readOnly.Load() || e.hurries.Load() > 0 || e.budget.pressure() > 0 {
		return 0
	}
	return restTimes
}

// hurry ends the rests of flushes and compactions until the function that it returns is called.
func (e *Engine) hurry() (done func()) {
	e.hurries.Add(1)
	return func() { e.hurries.Add(-1) }
}

// shrinkLog makes the log take little space, in a store at rest or on a full disk. Shrinking
// needs space itself, which a full disk may lack, so after a failure it waits a while.
func (e *Engine) shrinkLog(flushed kv.SeqNum, now time.Time) {
	k := &e.maintenance.space
	full := e.readOnly.Load()
	if !(e.atRest.Load() || full) || now.Before(k.shrinks) {
		return
	}
	switch err := e.log.Shrink(flushed); {
	case err == nil:
	case full && vfs.CannotWrite(err):
		k.shrinks = now.Add(housekeepingEvery)
	default:
		k.shrinks = now.Add(longPause)
		e.backgroundError(fmt.Errorf("shrink the idle log: %w", err))
	}
}

// due records the present state of a partition's active memtable, and reports whether the
// memtable should be flushed because of its age.
func (m *memtableAge) due(now time.Time, first, last kv.SeqNum, tombstones int) bool {
	if first != m.first {
		m.first, m.begun = first, now
	}
	if last != m.last {
		m.last, m.changed = last, now
	}
	idle, old := now.Sub(m.changed), now.Sub(m.begun)
	switch {
	case first == 0:
		return false
	case tombstones > 0:
		return idle >= flushAge/3 || old >= busyTombstoneAge*flushAge
	}
	return idle >= flushAge || old >= busyAge*flushAge
}
