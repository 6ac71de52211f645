package kv

import (
	"context"
	"fmt"
	"sync/atomic"
)

// ErrBudgetSpent: a read was skipped, or its value was not copied, because the reads
// that share its ReadBudget have reached the bound. It matches ErrTooLarge.
var ErrBudgetSpent = fmt.Errorf(
	"%w: the values asked for have more bytes together than one call may read; ask for fewer keys", ErrTooLarge)

// ReadBudget bounds the bytes of values that the reads of one call load into memory:
// see Lookup.Budget. The first value always fits, and so does every value until the
// bound is exceeded: the sum exceeds the bound by less than one value, unless the
// budget is exact (see ResetExact). A nil budget has no bound.
//
// A budget with a Memory reserves the bytes there before a value is copied. When the
// Memory refuses, the budget is spent, and Short tells how many bytes were missing. The
// caller must give back what was reserved: see Part and Return.
//
// A budget with a Meter counts each value there before it is copied. When the Meter refuses
// one, the budget is spent.
//
// Take, Give and Spent are safe for concurrent use, the other methods are not. Do not copy.
type ReadBudget struct {
	left  atomic.Int64 // negative: exceeded
	exact bool

	memory Memory       // nil: memory is not accounted
	held   atomic.Int64 // reserved from memory
	spare  atomic.Int64 // the part of held that no value uses yet
	short  atomic.Int64 // bytes that memory refused; 0: none

	meter   Meter        // nil: values are not counted
	metered atomic.Int64 // by meter, of values that may still be sent
}

// Memory is an account of bytes. Implementations are safe for concurrent use.
type Memory interface {
	// Take reserves bytes for a request that already holds others, or reports that
	// there is no room. It does not wait for other requests.
	Take(bytes, held int64) bool
	// Wait is like Take but waits for room. It fails with an *OverloadError, or when
	// ctx ends.
	Wait(ctx context.Context, bytes, held int64) error
	// Give gives bytes back.
	Give(bytes int64)
}

// Meter bounds the bytes of values that are sent over time. Implementations are safe for
// concurrent use.
type Meter interface {
	// Take counts bytes of values that are to be sent, or refuses them.
	Take(bytes int64) bool
	// Give takes back bytes that were counted and are not sent.
	Give(bytes int64)
}

const (
	// ValueCopies is how many copies of a value that is read are in memory: the value
	// itself and the encoded answer.
	ValueCopies = 2
	// memoryStep is the least that a budget reserves from its Memory at a time, so that
	// many small values need one reservation. Guessed.
	memoryStep = 16 << 10
)

// NewReadBudget returns a budget of this many bytes.
func NewReadBudget(bytes int) *ReadBudget {
	b := new(ReadBudget)
	b.Reset(bytes)
	return b
}

// Reset restores the budget to this many bytes. It keeps what it holds of the Memory.
func (b *ReadBudget) Reset(bytes int) {
	b.exact = false
	b.left.Store(int64(bytes))
	b.short.Store(0)
}

// ResetExact is like Reset, but no value may exceed the bound, not even the first: a
// value that is too large spends the budget.
func (b *ReadBudget) ResetExact(bytes int) {
	b.exact = true
	b.left.Store(int64(bytes))
	b.short.Store(0)
}

// BudgetMark is the state of a ReadBudget at a moment.
type BudgetMark struct{ left, used, metered int64 }

// Mark returns the state of the budget, for Rewind.
func (b *ReadBudget) Mark() (m BudgetMark) {
	if b != nil {
		m = BudgetMark{b.left.Load(), b.held.Load() - b.spare.Load(), b.metered.Load()}
	}
	return m
}

// Rewind takes back the values that were read since the mark, of which none may be in use
// any more. The budget keeps what it holds of the Memory.
func (b *ReadBudget) Rewind(m BudgetMark) {
	if b != nil {
		b.left.Store(m.left)
		b.spare.Store(b.held.Load() - m.used)
		b.short.Store(0)
		b.unmeter(m.metered)
	}
}

// Charge makes the budget reserve memory for values from m. The budget must hold
// nothing.
func (b *ReadBudget) Charge(m Memory) { b.memory = m }

// Meter makes the budget count values by m; nil: it does not count them.
func (b *ReadBudget) Meter(m Meter) { b.meter = m }

// Take reserves room for a value and reports whether there was enough.
func (b *ReadBudget) Take(bytes int) bool {
	if b == nil {
		return true
	}
	left := b.left.Add(-int64(bytes))
	if left < 0 && (b.exact || left < -int64(bytes)) {
		return false
	}
	if !b.Count(int64(bytes)) {
		b.left.Store(-1) // no further value fits
		return false
	}
	if b.memory == nil || b.charge(ValueCopies*int64(bytes)) {
		return true
	}
	if b.meter != nil {
		b.metered.Add(-int64(bytes))
		b.meter.Give(int64(bytes))
	}
	return false
}

// Give gives back what Take reserved for a value that is not used any more. The budget keeps what it
// holds of the Memory, for the next value. A budget that was spent may have room again.
func (b *ReadBudget) Give(bytes int) {
	if b == nil {
		return
	}
	b.left.Add(int64(bytes))
	if b.memory != nil {
		b.spare.Add(ValueCopies * int64(bytes))
	}
	if b.meter != nil {
		b.metered.Add(-int64(bytes))
		b.meter.Give(int64(bytes))
	}
}

// Count counts bytes by the Meter and reports whether that took them. Take calls it for each
// value.
func (b *ReadBudget) Count(bytes int64) bool {
	if b.meter == nil {
		return true
	}
	if !b.meter.Take(bytes) {
		return false
	}
	b.metered.Add(bytes)
	return true
}

// unmeter gives back what was counted beyond so many bytes.
func (b *ReadBudget) unmeter(left int64) {
	if b.meter != nil {
		b.meter.Give(b.metered.Swap(left) - left)
	}
}

// Settle returns the bytes that the Meter has counted and not taken back, and forgets them. It
// is called when the answers of the call are made.
func (b *ReadBudget) Settle() (counted int64) { return b.metered.Swap(0) }

// charge uses bytes that the budget holds, or reserves more.
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
			b.left.Store(-1) // no further value fits
			return false
		}
		step = bytes
	}
	b.held.Add(step)
	b.spare.Add(step - bytes)
	return true
}

// Spent reports whether the bound has been exceeded. Then no further value fits, and
// looking one up is useless.
func (b *ReadBudget) Spent() bool { return b != nil && b.left.Load() < 0 }

// Short returns how many bytes the Memory refused since the last Reset.
func (b *ReadBudget) Short() int64 { return b.short.Load() }

// Held returns how many bytes of the Memory the budget holds.
func (b *ReadBudget) Held() int64 { return b.held.Load() }

// Grant adds bytes that the caller has reserved from the Memory for later values.
func (b *ReadBudget) Grant(bytes int64) {
	b.held.Add(bytes)
	b.spare.Add(bytes)
}

// Await waits for the bytes that the Memory refused and grants them.
func (b *ReadBudget) Await(ctx context.Context) error {
	short := b.Short()
	if err := b.memory.Wait(ctx, short, b.Held()); err != nil {
		return err
	}
	b.Grant(short)
	return nil
}

// AwaitAnew gives back all that the budget holds, then waits until the Memory grants as
// much again plus what it refused. It is for a call that starts again from the
// beginning.
func (b *ReadBudget) AwaitAnew(ctx context.Context) error {
	need := b.Held() + b.Short()
	b.Return()
	b.unmeter(0)
	if err := b.memory.Wait(ctx, need, 0); err != nil {
		return err
	}
	b.Grant(need)
	return nil
}

// Part removes the bytes of one value from the budget and returns their number. The
// caller then owes them to the Memory.
func (b *ReadBudget) Part(value int) int64 {
	bytes := min(ValueCopies*int64(value), b.held.Load())
	b.held.Add(-bytes)
	return bytes
}

// Lend removes all that the budget holds and returns how much that is. The caller then
// owes it to the Memory.
func (b *ReadBudget) Lend() int64 {
	b.spare.Store(0)
	return b.held.Swap(0)
}

// Memory returns the Memory that the budget reserves from, nil if there is none.
func (b *ReadBudget) Memory() Memory {
	if b == nil {
		return nil
	}
	return b.memory
}

// Trim gives back the bytes that no value used.
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
