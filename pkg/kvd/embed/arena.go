package embed

// arena copies the items of a scan, which belong to the caller, into blocks of memory that
// they share: a copy of its own for each key and value would be two allocations an item. An
// item that a caller keeps keeps its block.
//
// The first block is small, for scans of few items, and each further one twice as large.
type arena struct {
	free []byte
	next int // bytes of the next block
}

const (
	firstBlock   = 1 << 10
	largestBlock = 32 << 10
)

// clone returns a copy of b, never nil, that the caller owns.
func (a *arena) clone(b []byte) []byte {
	if len(b) > len(a.free) || a.free == nil {
		if len(b) > largestBlock/4 {
			return append(make([]byte, 0, len(b)), b...)
		}
		a.next = min(max(2*a.next, firstBlock), largestBlock)
		a.free = make([]byte, max(a.next, len(b)))
	}
	n := copy(a.free, b)
	copied := a.free[:n:n]
	a.free = a.free[n:]
	return copied
}
