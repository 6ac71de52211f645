package workload

import "sync/atomic"

// deletionSlots bounds the memory of deletions to 8 MiB. Guessed: with a million slots
// a key of a typical run shares its slot with few others.
const deletionSlots = 1 << 20

// deletions lets a worker distinguish a lost key from one that another worker deleted.
// Workers share the key space, so the absence of a key that a worker put proves nothing
// by itself.
//
// I1. possible(id, since) is true if a delete of id that may have taken effect after
// since began before the call. It may be true without such a delete, because keys share
// slots, but is never false with one. So a lost key may go unnoticed, but a correct
// store is never accused.
//
// Safe for concurrent use. Cost: two stores and a compare-and-swap per delete, nothing
// for puts and found keys.
type deletions struct {
	lastEnd  []atomic.Int64 // by slot: when the last delete returned; 0: never
	underway []underway     // by worker: the key that it is deleting, plus one; 0: none
}

// underway fills a cache line to avoid false sharing between workers.
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

// begin must be called before a delete. If the delete fails, end must not be called,
// since the delete may still take effect.
func (d *deletions) begin(worker int, id uint64) {
	d.underway[worker].idPlusOne.Store(id + 1)
}

// end must be called after a delete that succeeded. I1 depends on the order of its two
// steps: possible reads underway first.
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

// possible reports whether a delete may explain the absence of a key whose put began at
// since.
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
