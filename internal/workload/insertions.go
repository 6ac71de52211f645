package workload

import (
	"sync"
	"sync/atomic"
)

// insertions numbers the records that workers insert and knows up to where all
// of them are acknowledged: those may be read, and must be there.
//
// Safe for concurrent use.
type insertions struct {
	acknowledged atomic.Uint64 // records 0 ... acknowledged-1 are there

	mu    sync.Mutex
	next  uint64
	early map[uint64]struct{} // acknowledged before one that was begun earlier
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

// end tells that a record was inserted. A record whose insertion failed is never
// told; nothing behind it is read then.
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
