package workload

import "sync/atomic"

// ledger counts, for each record, the read-modify-writes that were acknowledged since
// the last blind write. A read that begins later must find at least that many changes
// in the record's value, and exactly that many once all workers have ended.
//
// Safe for concurrent use, except for grow.
type ledger struct {
	changes []atomic.Uint32
}

// grow makes room for the records 0 ... n-1. New records have no changes.
func (l *ledger) grow(n uint64) {
	if n <= uint64(len(l.changes)) {
		return
	}
	changes := make([]atomic.Uint32, n)
	for i := range l.changes {
		changes[i].Store(l.changes[i].Load())
	}
	l.changes = changes
}

// count returns the changes of a record; 0 for a record that was inserted after the
// last grow, as no worker changes it before the next one.
func (l *ledger) count(id uint64) uint64 {
	if id >= uint64(len(l.changes)) {
		return 0
	}
	return uint64(l.changes[id].Load())
}

func (l *ledger) add(id uint64) { l.changes[id].Add(1) }

func (l *ledger) reset(id uint64) {
	if id < uint64(len(l.changes)) {
		l.changes[id].Store(0)
	}
}
