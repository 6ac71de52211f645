// Package partitiontest has stand-ins for what a partition and its coordinator use, for
// their tests.
package partitiontest

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// World is what a partition and its coordinator need from the engine above them, at its
// simplest: a log that is durable at once, and everything applied is visible.
type World struct {
	mu        sync.Mutex
	next      kv.SeqNum
	pos       wal.Pos
	snapshots []kv.SeqNum
	now       uint64
	memory    int64
	stalled   wal.Pos              // what is synced while the disk stands still; 0: it does not
	OnApplied func(base kv.SeqNum) // called by Applied, if not nil
	full      bool                 // there is no room yet
	waiting   []wal.Waker          // for room
}

func (w *World) Append(payload []byte, units uint32, _ kv.Durability, waker wal.Waker, _ *trace.Batch) (kv.SeqNum, wal.Pos, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return 0, 0, wal.ErrNoRoomYet
	}
	base := w.next
	w.next += kv.SeqNum(units)
	w.pos += wal.Pos(len(payload))
	waker.Wake()
	return base, w.pos, nil
}

func (w *World) OnRoom(waker wal.Waker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.full {
		waker.Wake()
		return
	}
	w.waiting = append(w.waiting, waker)
}

// MakeRoom has Append find room, or none.
func (w *World) MakeRoom(room bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = !room
	for _, waker := range w.waiting {
		waker.Wake()
	}
	w.waiting = nil
}

func (w *World) Flush()                                    {}
func (w *World) FlushOrSync()                              {}
func (w *World) WaitSynced(context.Context, wal.Pos) error { return nil }
func (w *World) Err() error                                { return nil }
func (w *World) Ready(*partition.Partition)                {}

func (w *World) Applied(base kv.SeqNum, _ uint32) {
	if w.OnApplied != nil {
		w.OnApplied(base)
	}
}

// Reached implements commit.Log.
func (w *World) Reached(level kv.Durability) wal.Pos {
	if level == kv.DurabilityMemory {
		return math.MaxUint64
	}
	return w.Synced()
}

func (w *World) Synced() wal.Pos {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled > 0 {
		return w.stalled
	}
	return w.pos
}

func (w *World) WaitVisible(context.Context, kv.SeqNum) error { return nil }

func (w *World) Horizon() ([]kv.SeqNum, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(append(slices.Clone(w.snapshots), w.next-1))), w.now
}

func (w *World) Now() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *World) grew(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory += bytes
}

func (w *World) Grew(_ *partition.Partition, bytes int64)    { w.grew(bytes) }
func (w *World) Sealed(*partition.Partition, int64)          {}
func (w *World) Flushed(_ *partition.Partition, bytes int64) { w.grew(-bytes) }

// Stall makes the disk stand still, or go on.
func (w *World) Stall(begin bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = 0
	if begin {
		w.stalled = max(w.pos, 1)
	}
}

// NewWorld returns a World whose log is empty.
func NewWorld() *World { return &World{next: 1} }

// Options returns options of a partition in this world, in the directory p.
func (w *World) Options(fs vfs.FS) partition.Options {
	return partition.Options{
		FS: fs, Dir: "p", Now: w.Now, Sequencer: w, Budget: w, Scheduler: w, Cache: sstable.NewCache(1 << 20),
		FlushBytes: 1 << 20, TableBytes: 1, Table: sstable.WriterOptions{BlockBytes: 512},
	}
}

// Last returns the newest number that was given out.
func (w *World) Last() kv.SeqNum {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next - 1
}

// Stalled reports whether the disk stands still.
func (w *World) Stalled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled > 0
}

// SetNow sets the clock.
func (w *World) SetNow(now uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

// Snapshot has Horizon name the newest number, until Release.
func (w *World) Snapshot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snapshots = append(w.snapshots, w.next-1)
}

// Release ends all snapshots.
func (w *World) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snapshots = nil
}
