package engine

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// budget counts memtable bytes over all partitions, chooses the partition that seals its
// memtable, and slows writers down before memory runs out.
//
// # Sealing
//
// When the active memtables together pass their share of the budget, the largest one is sealed.
// With P partitions its size is then between 1/P and 2/P of the share. The rest of the budget is for
// sealed memtables that are being flushed, which are few: so the share is half the budget for up to
// 4 partitions, and P/(P+4) for more, at most three quarters. With 16 partitions and 16 MiB that
// makes a third less flushes, each with its syncs, and 1.3 times as many puts (bench/NOTES.md).
//
// At most one partition at a time is asked to seal for this reason, so partitions flush, and
// therefore compact, at different times. (The source of this design has a threshold for
// each partition: partitions that share a load then flush together, and the memory grows
// with their number.)
//
// # Pacing
//
// Pressure is 0 while half of what is not the share of active memtables is free, 1 at the whole
// budget, and grows linearly beyond; too many deltas raise it in the same way. Under
// pressure writers are paced: all of them together are admitted at a rate that falls
// smoothly from four times the rate of flushes to a fifth of it. At pressure 2, which is
// a budget and a quarter with up to 4 partitions, no write is admitted until a flush ends. A write
// that would wait for longer than patience is shed.
//
// Small writes are delayed by small writes only, large writes by both: a small write that
// waited for the large ones before it would take a hundred times as long as without them.
// Small writes are charged to large ones at three quarters of their bytes, so that they
// leave them a quarter of the rate. A large write waits for the end of a flush if it alone
// would bring the pressure to 2, and so leaves room for small ones.
type budget struct {
	limit int64
	share int64 // of active memtables
	calm  int64 // up to here there is no pressure
	sheds atomic.Uint64

	active     atomic.Int64   // in active memtables
	sealed     atomic.Int64   // in sealed ones
	partitions []atomic.Int64 // active bytes by partition
	asked      atomic.Bool    // a partition was asked to seal and has not done so yet
	all        func() []*partition.Partition
	deltas     atomic.Int64  // most deltas in any partition
	drain      atomic.Uint64 // measured rate of flushes, bytes a second
	paced      atomic.Bool
	onPace     func(began bool, rate uint64) // may be nil
	telling    sync.Mutex                    // so that onPace is called in the order of the changes

	mu    sync.Mutex
	small time.Time     // when the last admitted byte of small writes is paid for
	large time.Time     // likewise of all writes
	room  chan struct{} // closed when a flush ends; nil if no writer waits
}

const (
	// patience is how long a write is delayed at most; one that would wait longer is
	// shed. Guessed: see batcher.MaxQueueWait.
	patience = time.Second
	// initialDrain is assumed until the first flush is measured: bytes a second.
	initialDrain = 64 << 20
	// deltasSoft is the number of deltas in one partition above which there is pressure;
	// at twice as many it is 1. Guessed: lazy leveling keeps a healthy partition below ten.
	deltasSoft = 12
	// burst is how far a writer may be ahead of the pace without waiting.
	burst = 5 * time.Millisecond
	// stop is the pressure at which no write is admitted.
	stop = 2
	// smallShare is the share of the rate that small writes take from large ones at most.
	smallShare = 0.75
)

func newBudget(limit int64, partitions int) *budget {
	b := &budget{limit: limit, partitions: make([]atomic.Int64, partitions)}
	part := min(max(0.5, float64(partitions)/float64(partitions+4)), 0.75)
	b.share = int64(part * float64(limit))
	b.calm = (b.share + limit) / 2
	b.drain.Store(initialDrain)
	return b
}

// Grew implements partition.Budget.
func (b *budget) Grew(p *partition.Partition, bytes int64) {
	b.partitions[p.ID()].Add(bytes)
	b.active.Add(bytes)
	b.askIfFull()
}

// askIfFull asks the partition with the largest active memtable to seal it if the active
// memtables together are too large, unless a partition was asked and has not sealed yet.
func (b *budget) askIfFull() {
	if b.active.Load() > b.share && b.asked.CompareAndSwap(false, true) {
		b.largest().Seal()
	}
}

// Sealed implements partition.Budget.
func (b *budget) Sealed(p *partition.Partition, bytes int64) {
	b.sealed.Add(bytes)
	b.active.Add(-bytes)
	b.partitions[p.ID()].Add(-bytes)
	b.asked.Store(false)
	b.askIfFull() // one may not be enough, and Grew may not be called again while writers wait
}

// Flushed implements partition.Budget.
func (b *budget) Flushed(_ *partition.Partition, bytes int64) {
	b.sealed.Add(-bytes)
	b.mu.Lock()
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	b.mu.Unlock()
	b.endPacing()
}

// setDeltas notes the most deltas in any partition.
func (b *budget) setDeltas(most int64) {
	b.deltas.Store(most)
	b.endPacing()
}

// measured notes how long a flush took.
func (b *budget) measured(bytes uint64, took time.Duration) {
	if bytes < 1<<20 || took <= 0 {
		return // too small for a measurement
	}
	rate := float64(bytes) / took.Seconds()
	b.drain.Store(uint64(0.7*float64(b.drain.Load()) + 0.3*rate))
}

// largest returns the partition with the most bytes in its active memtable.
func (b *budget) largest() *partition.Partition {
	all := b.all()
	best := 0
	for i := range b.partitions {
		if b.partitions[i].Load() > b.partitions[best].Load() {
			best = i
		}
	}
	return all[best]
}

// full reports whether the memtables take the whole budget.
func (b *budget) full() bool { return b.used() >= b.limit }

// activeOf returns the bytes in the active memtable of a partition.
func (b *budget) activeOf(p *partition.Partition) int64 { return b.partitions[p.ID()].Load() }

func (b *budget) used() int64 { return b.active.Load() + b.sealed.Load() }

// pressure returns how far background work lags: see budget.
func (b *budget) pressure() float64 {
	memory := b.pressureOf(b.used())
	deltas := float64(b.deltas.Load()-deltasSoft) / deltasSoft
	return max(0, memory, min(deltas, 1.9)) // deltas slow writers, but never stop them
}

// pressureOf returns the pressure when this many bytes of the budget are in use.
func (b *budget) pressureOf(used int64) float64 {
	return float64(used-b.calm) / float64(b.limit-b.calm)
}

// stops reports whether a write of this many bytes has to wait until a flush ends.
func (b *budget) stops(bytes int) bool {
	used := b.used()
	if isLarge(bytes) && b.sealed.Load() > 0 { // else there is no flush to wait for
		used += int64(bytes)
	}
	return b.pressureOf(used) >= stop
}

// rateAt returns how many bytes a second are admitted at a pressure above 0 if flushes
// write drain bytes a second.
func rateAt(pressure, drain float64) float64 {
	// 4 at pressure 0, 0.9 at 1, 0.2 at 2: a straight line on a logarithmic scale.
	return drain * 4 * math.Exp(-1.5*pressure)
}

// admit waits until writes of this many bytes may proceed.
func (b *budget) admit(ctx context.Context, bytes int) error {
	pressure := b.pressure()
	if pressure == 0 {
		return nil
	}
	if b.stops(bytes) {
		return b.waitForRoom(ctx, bytes)
	}
	rate := rateAt(pressure, float64(b.drain.Load()))
	b.setPaced(true, uint64(rate))
	b.endPacing() // the pressure may have ended before paced was set
	wait := b.reserve(bytes, rate)
	if wait <= 0 {
		return nil
	}
	if wait > patience {
		return b.shed()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve charges bytes to the pace and returns how long to wait. It charges nothing if
// that is longer than patience.
func (b *budget) reserve(bytes int, rate float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	earliest := now.Add(-burst)
	if b.small.Before(earliest) {
		b.small = earliest
	}
	if b.large.Before(earliest) {
		b.large = earliest
	}
	cost := time.Duration(float64(bytes) / rate * float64(time.Second))
	wait := b.small.Sub(now)
	if isLarge(bytes) {
		wait = b.large.Sub(now)
	}
	switch {
	case wait > patience:
	case isLarge(bytes):
		b.large = b.large.Add(cost)
	default:
		b.small = b.small.Add(cost)
		b.large = b.large.Add(time.Duration(smallShare * float64(cost)))
	}
	return wait
}

func (b *budget) waitForRoom(ctx context.Context, bytes int) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	for room := b.flushEnd(bytes); room != nil; room = b.flushEnd(bytes) {
		select {
		case <-room:
		case <-t.C:
			return b.shed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// flushEnd returns nil if writes of this many bytes may proceed, otherwise a channel that is closed
// when a flush ends.
func (b *budget) flushEnd(bytes int) <-chan struct{} {
	if !b.stops(bytes) {
		return nil
	}
	b.mu.Lock()
	if b.room == nil {
		b.room = make(chan struct{})
	}
	room := b.room
	b.mu.Unlock()
	if !b.stops(bytes) { // a flush may have ended before room was made
		return nil
	}
	return room
}

func (b *budget) shed() error {
	b.sheds.Add(1)
	return &kv.OverloadError{Reason: "memtables_full", RetryAfter: patience}
}

// endPacing ends pacing if there is no pressure any more. Whatever lowers the pressure calls it: no
// write may follow that would notice.
func (b *budget) endPacing() {
	if b.paced.Load() && b.pressure() == 0 {
		b.setPaced(false, 0)
	}
}

// setPaced tells the listener when pacing begins and ends.
func (b *budget) setPaced(paced bool, rate uint64) {
	if b.paced.Load() == paced {
		return
	}
	b.telling.Lock()
	defer b.telling.Unlock()
	if b.paced.Swap(paced) != paced && b.onPace != nil {
		b.onPace(paced, rate)
	}
}
