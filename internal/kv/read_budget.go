package kv

import (
	"context"
	"fmt"
	"sync/atomic"
)

// ErrBudgetSpent: a read was not tried, or its value not copied, because the
// reads that share its ReadBudget had brought enough already. It is ErrTooLarge.
var ErrBudgetSpent = fmt.Errorf("%w: the values asked for have more bytes together than one call may read; ask for fewer keys", ErrTooLarge)

// ReadBudget bounds the bytes of values that the reads of one call bring into
// memory: see Lookup.Budget. The first value is always within it, and so is each
// one until the bound is passed; the sum exceeds the bound by less than one
// value, unless the budget is exact. A nil budget has no bound.
//
// A budget with a Memory takes the bytes from there before a value is copied. When the
// Memory refuses, the budget is spent, and Short tells what is missing. What was taken
// is the caller's to give back: see Part and Return.
//
// Take and Spent are safe for concurrent use, the rest is not; not to be copied.
type ReadBudget struct {
	left  atomic.Int64 // negative: passed
	exact bool

	memory Memory       // nil: nobody counts
	held   atomic.Int64 // taken from memory
	spare  atomic.Int64 // of these, for values to come
	short  atomic.Int64 // what memory refused; 0: it did not
}

// Memory is an account of bytes. Implementations are safe for concurrent use.
type Memory interface {
	// Take takes bytes for a request that holds others already, or reports that there
	// is no room. It does not wait.
	Take(bytes, held int64) bool
	// Wait is Take that waits for room. It fails with a *OverloadError, or when ctx ends.
	Wait(ctx context.Context, bytes, held int64) error
	// Give gives bytes back.
	Give(bytes int64)
}

const (
	// ValueCopies is how often a value that is read is in memory: as it was found, and
	// in the encoded answer.
	ValueCopies = 2
	// memoryStep is what a budget takes from its Memory at least, so that it does so
	// once for many small values. Guessed.
	memoryStep = 16 << 10
)

// NewReadBudget returns a budget of so many bytes.
func NewReadBudget(bytes int) *ReadBudget {
	b := new(ReadBudget)
	b.Reset(bytes)
	return b
}

// Reset makes the budget whole again. It holds what it holds.
func (b *ReadBudget) Reset(bytes int) {
	b.exact = false
	b.left.Store(int64(bytes))
	b.short.Store(0)
}

// ResetExact makes it a budget that no value may pass, not even the first: it is
// spent by one that is too large.
func (b *ReadBudget) ResetExact(bytes int) {
	b.exact = true
	b.left.Store(int64(bytes))
	b.short.Store(0)
}

// Charge has the budget take what values need from m. It must hold nothing.
func (b *ReadBudget) Charge(m Memory) { b.memory = m }

// Take asks for room for a value and reports whether there is some.
func (b *ReadBudget) Take(bytes int) bool {
	if b == nil {
		return true
	}
	left := b.left.Add(-int64(bytes))
	if left < 0 && (b.exact || left < -int64(bytes)) {
		return false
	}
	return b.memory == nil || b.charge(ValueCopies*int64(bytes))
}

// charge takes bytes out of what the budget holds, or holds more.
func (b *ReadBudget) charge(bytes int64) bool {
	if b.spare.Add(-bytes) >= 0 {
		return true
	}
	b.spare.Add(bytes)
	held := b.held.Load()
	step := max(bytes, memoryStep)
	if !b.memory.Take(step, held) {
		if step == bytes || !b.memory.Take(bytes, held) {
			b.short.Store(bytes)
			b.left.Store(-1) // no other value has room
			return false
		}
		step = bytes
	}
	b.held.Add(step)
	b.spare.Add(step - bytes)
	return true
}

// Spent reports whether the values asked for so far passed the bound. Then no
// other will have room, and looking for one is not worth the while.
func (b *ReadBudget) Spent() bool { return b != nil && b.left.Load() < 0 }

// Short returns how many bytes the Memory refused since the last Reset.
func (b *ReadBudget) Short() int64 { return b.short.Load() }

// Held returns how many bytes the budget holds of its Memory.
func (b *ReadBudget) Held() int64 { return b.held.Load() }

// Grant adds bytes that the caller has taken from the Memory for values to come.
func (b *ReadBudget) Grant(bytes int64) {
	b.held.Add(bytes)
	b.spare.Add(bytes)
}

// Await waits for the bytes that the Memory refused, and grants them.
func (b *ReadBudget) Await(ctx context.Context) error {
	short := b.Short()
	if err := b.memory.Wait(ctx, short, b.Held()); err != nil {
		return err
	}
	b.Grant(short)
	return nil
}

// AwaitAnew gives back all that the budget holds and waits for as much again together
// with what the Memory refused: for a call that begins anew with it.
func (b *ReadBudget) AwaitAnew(ctx context.Context) error {
	need := b.Held() + b.Short()
	b.Return()
	if err := b.memory.Wait(ctx, need, 0); err != nil {
		return err
	}
	b.Grant(need)
	return nil
}

// Part takes the bytes of a value that was read out of the budget: the caller gives
// them back to the Memory. It returns how many they are.
func (b *ReadBudget) Part(value int) int64 {
	bytes := min(ValueCopies*int64(value), b.held.Load())
	b.held.Add(-bytes)
	return bytes
}

// Lend takes all that the budget holds out of it: the caller gives it back to the
// Memory. It returns how much that is.
func (b *ReadBudget) Lend() int64 {
	b.spare.Store(0)
	return b.held.Swap(0)
}

// Memory returns where the budget takes bytes from, nil if nobody counts.
func (b *ReadBudget) Memory() Memory {
	if b == nil {
		return nil
	}
	return b.memory
}

// Trim gives back what no value needed.
func (b *ReadBudget) Trim() {
	if spare := b.spare.Swap(0); spare != 0 {
		b.held.Add(-spare)
		b.memory.Give(spare)
	}
}

// Return gives back all that the budget holds.
func (b *ReadBudget) Return() {
	if b.memory != nil {
		b.spare.Store(0)
		b.memory.Give(b.held.Swap(0))
	}
}
