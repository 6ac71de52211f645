package workload

import "sync/atomic"

// deletionSlots bounds the memory of deletions to 8 MiB. Guessed: with a
// million slots a key shares its own with few others of a usual run.
const deletionSlots = 1 << 20

// deletions lets a worker tell a lost key from one that another worker
// deleted: the key space is shared, so "I put it and it is gone" alone proves
// nothing.
//
// I1. possible(id, since) is true if any delete of id that may have taken
// effect after the moment since had begun before the call. It may be true
// without cause, because keys share slots; it is never false without cause. So
// a lost key may go unnoticed, but a correct store is never accused.
//
// Safe for concurrent use. Cost: two stores and a compare-and-swap per delete,
// nothing for puts and found keys.
type deletions struct {
	lastEnd  []atomic.Int64 // by slot: when the last delete returned; 0 is never
	underway []underway     // by worker: the key that it is deleting, plus one; 0 is none
}

// underway fills a cache line, so that workers do not slow each other.
type underway struct {
	idPlusOne atomic.Uint64
	_         [56]byte
}

func newDeletions(keys uint64, workers int) *deletions {
	return &deletions{
		lastEnd:  make([]atomic.Int64, min(keys, deletionSlots)),
		underway: make([]underway, workers),
	}
}

// begin precedes a delete. If that fails, its end is never told: its effect
// may still come.
func (d *deletions) begin(worker int, id uint64) {
	d.underway[worker].idPlusOne.Store(id + 1)
}

// end follows a delete. The order of its two steps is what I1 rests on:
// possible looks at underway first.
func (d *deletions) end(worker int, id uint64, now int64) {
	slot := d.slot(id)
	for {
		last := slot.Load()
		if last >= now || slot.CompareAndSwap(last, now) {
			break
		}
	}
	d.underway[worker].idPlusOne.Store(0)
}

// possible reports whether a delete may explain that a key, whose put began at
// since, is absent.
func (d *deletions) possible(id uint64, since int64) bool {
	for i := range d.underway {
		if d.underway[i].idPlusOne.Load() == id+1 {
			return true
		}
	}
	return d.slot(id).Load() >= since
}

func (d *deletions) slot(id uint64) *atomic.Int64 {
	return &d.lastEnd[id%uint64(len(d.lastEnd))]
}
