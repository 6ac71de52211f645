package kv

import (
	"fmt"
	"sync/atomic"
)

// ErrBudgetSpent: a read was not tried, or its value not copied, because the
// reads that share its ReadBudget had brought enough already. It is ErrTooLarge.
var ErrBudgetSpent = fmt.Errorf("%w: the values asked for have more bytes together than one call may read; ask for fewer keys", ErrTooLarge)

// ReadBudget bounds the bytes of values that the reads of one call bring into
// memory: see Lookup.Budget. The first value is always within it, and so is each
// one until the bound is passed; the sum exceeds the bound by less than one
// value, unless the budget is exact. A nil budget has no bound. Safe for concurrent
// use, but for ResetExact and Reset; not to be copied.
type ReadBudget struct {
	left  atomic.Int64 // negative: passed
	exact bool
}

// NewReadBudget returns a budget of so many bytes.
func NewReadBudget(bytes int) *ReadBudget {
	b := new(ReadBudget)
	b.Reset(bytes)
	return b
}

// Reset makes the budget whole again.
func (b *ReadBudget) Reset(bytes int) {
	b.exact = false
	b.left.Store(int64(bytes))
}

// ResetExact makes it a budget that no value may pass, not even the first: it is
// spent by one that is too large.
func (b *ReadBudget) ResetExact(bytes int) {
	b.exact = true
	b.left.Store(int64(bytes))
}

// Take asks for room for a value and reports whether there is some.
func (b *ReadBudget) Take(bytes int) bool {
	if b == nil {
		return true
	}
	left := b.left.Add(-int64(bytes))
	return left >= 0 || !b.exact && left >= -int64(bytes)
}

// Spent reports whether the values asked for so far passed the bound. Then no
// other will have room, and looking for one is not worth the while.
func (b *ReadBudget) Spent() bool { return b != nil && b.left.Load() < 0 }
