package engine

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Space comes back by itself: what is deleted, overwritten or expired is in memtables
// and files, and in the log. While a store is written to, flushes and merges go by size
// (package compaction). The keeper sees to the rest: it has old memtables flushed, and
// in a store at rest it has merges go by tighter bounds and the log shrink.

const (
	// restAfter is for how long a store must have been written to at less than
	// restBytes until it is at rest. Guessed: longer than the pauses of a load.
	restAfter = 10 * time.Second
	restBytes = 1 << 20
	// lookEvery is how often merges are looked for though nothing was flushed: entries
	// expire, and leases of snapshots end.
	lookEvery = 10 * time.Second

	// A memtable is flushed when it was not written to for Options.FlushAge, or a
	// third of that if it has tombstones, for they hold up space elsewhere. One that
	// is written to all the time is flushed at busyAge times that age, with tombstones
	// at busyTombstoneAge times.
	busyAge          = 20
	busyTombstoneAge = 2
)

// spaceKeeper is what the keeper knows of the space of a store. Used by the keeper
// alone.
type spaceKeeper struct {
	memtables []memtableAge // by partition
	bytes     uint64        // written when the store last was not at rest
	busy      time.Time     // when that was
	looked    time.Time     // when merges were last looked for
	shrinks   time.Time     // when the log may be asked to shrink again
}

// memtableAge says when the active memtable of a partition was seen to begin, and to
// have changed last.
type memtableAge struct {
	first, last    kv.SeqNum
	begun, changed time.Time
}

// keepSpace flushes old memtables and looks for merges.
func (e *Engine) keepSpace(now time.Time) {
	k := &e.keeper.space
	if k.memtables == nil {
		k.memtables = make([]memtableAge, len(e.partitions))
		k.busy = now
	}
	var written uint64
	for i, p := range e.partitions {
		first, last, tombstones := p.ActiveMemtable()
		if k.memtables[i].due(now, first, last, tombstones, e.opts.FlushAge) {
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

// shrinkLog has the log take little space, in a store at rest or on a full disk. What it
// needs may be what a full disk lacks, so after a failure it waits a while.
func (e *Engine) shrinkLog(flushed kv.SeqNum, now time.Time) {
	k := &e.keeper.space
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

// due notes how a partition's active memtable looks now, and reports whether it should
// be flushed for its age.
func (m *memtableAge) due(now time.Time, first, last kv.SeqNum, tombstones int, age time.Duration) bool {
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
		return idle >= age/3 || old >= busyTombstoneAge*age
	}
	return idle >= age || old >= busyAge*age
}
