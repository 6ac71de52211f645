package workload

import (
	"sync"
	"sync/atomic"
)

// insertions assigns numbers to inserted records, and tracks up to which number all
// insertions are acknowledged: those records may be read, and must be found.
//
// Safe for concurrent use.
type insertions struct {
	acknowledged atomic.Uint64 // records 0 ... acknowledged-1 are present

	mu    sync.Mutex
	next  uint64
	early map[uint64]struct{} // acknowledged before a record with a lower number
}

func newInsertions(records uint64) *insertions {
	i := &insertions{next: records, early: make(map[uint64]struct{})}
	i.acknowledged.Store(records)
	return i
}

// begin returns the number of the next record to insert.
func (i *insertions) begin() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.next
	i.next++
	return id
}

// end reports that a record was inserted. It must not be called for a failed insertion;
// no record with a higher number becomes readable then.
func (i *insertions) end(id uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	count := i.acknowledged.Load()
	if id != count {
		i.early[id] = struct{}{}
		return
	}
	for count++; ; count++ {
		if _, ok := i.early[count]; !ok {
			break
		}
		delete(i.early, count)
	}
	i.acknowledged.Store(count)
}
