package embed

// arena copies the results of a scan or GetMany, which belong to the caller, into blocks of
// memory that they share: a copy of its own for each key and value would be two allocations an
// item. An item that a caller keeps keeps its block.
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

// clone returns copies of a key and its value, never nil, that the caller owns.
func (a *arena) clone(key, value []byte) ([]byte, []byte) {
	k := len(key)
	n := k + len(value)
	to := a.reserve(n)
	copy(to, key)
	copy(to[k:], value)
	return to[:k:k], to[k:n:n]
}

// expect makes the first block as large as the items that come have together.
func (a *arena) expect(bytes int) {
	a.free, a.next = make([]byte, min(bytes, largestBlock)), largestBlock
}

// reserve returns n bytes.
func (a *arena) reserve(n int) []byte {
	if n > len(a.free) || a.free == nil {
		if n > largestBlock/4 {
			return make([]byte, n)
		}
		a.next = min(max(2*a.next, firstBlock), largestBlock)
		a.free = make([]byte, max(a.next, n))
	}
	reserved := a.free[:n]
	a.free = a.free[n:]
	return reserved
}
