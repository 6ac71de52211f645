package memtable

import "sync/atomic"

// list is a slice that one goroutine extends and any goroutine reads.
type list[T any] struct {
	items atomic.Pointer[[]T]
}

// all returns the items, nil if there are none.
func (l *list[T]) all() []T {
	if p := l.items.Load(); p != nil {
		return *p
	}
	return nil
}

// add returns the index of the new item. A reader of the old slice never reads
// beyond its length, so both may share memory.
func (l *list[T]) add(item T) uint64 {
	grown := append(l.all(), item)
	l.items.Store(&grown)
	return uint64(len(grown) - 1)
}
