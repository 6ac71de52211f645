package kv

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadBudgetEndsAtTheValueThatPassesIt(t *testing.T) {
	b := NewReadBudget(10)
	assert.True(t, b.Take(4))
	assert.True(t, b.Take(6))
	assert.False(t, b.Spent(), "exactly the bound is within it")
	assert.True(t, b.Take(0), "an empty value as well")
	assert.True(t, b.Take(3), "the one that passes it")
	assert.True(t, b.Spent())
	assert.False(t, b.Take(1))
	assert.False(t, b.Take(0))

	b.Reset(10)
	assert.True(t, b.Take(1000), "a value is never too large for a whole budget")
	assert.False(t, b.Take(1))

	b.ResetExact(10)
	assert.True(t, b.Take(4))
	assert.True(t, b.Take(6))
	assert.False(t, b.Take(1), "an exact one is not passed")
	assert.True(t, b.Spent())
	assert.False(t, b.Take(0))
	b.ResetExact(10)
	assert.False(t, b.Take(11), "not even by the first value")
	b.Reset(10)
	assert.True(t, b.Take(11))

	var none *ReadBudget
	assert.True(t, none.Take(1<<40))
	assert.False(t, none.Spent())
	assert.ErrorIs(t, ErrBudgetSpent, ErrTooLarge)
}

func TestReadBudgetIsExactBetweenGoroutines(t *testing.T) {
	b := NewReadBudget(100)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if b.Take(7) {
					taken.Add(7)
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 105, taken.Load(), "less than a value beyond the bound")
}

// fakeMemory is a Memory with a fixed number of bytes.
type fakeMemory struct{ left int64 }

func (m *fakeMemory) Take(bytes, _ int64) bool {
	if bytes > m.left {
		return false
	}
	m.left -= bytes
	return true
}

func (m *fakeMemory) Wait(context.Context, int64, int64) error { return ErrOverloaded }
func (m *fakeMemory) Give(bytes int64)                         { m.left += bytes }

func TestReadBudgetTakesFromItsMemory(t *testing.T) {
	const all = 100_000
	m := &fakeMemory{left: all}
	b := NewReadBudget(1 << 20)
	b.Charge(m)
	require.True(t, b.Take(100))
	assert.EqualValues(t, memoryStep, b.Held(), "taken for many small values at once")
	assert.True(t, b.Take(30_000))
	assert.EqualValues(t, all-m.left, b.Held())
	assert.False(t, b.Take(30_000), "the memory has no more")
	assert.True(t, b.Spent())
	assert.EqualValues(t, ValueCopies*30_000, b.Short())
	require.ErrorIs(t, b.Await(t.Context()), ErrOverloaded)

	part := b.Part(30_000)
	assert.EqualValues(t, ValueCopies*30_000, part)
	m.Give(part)
	b.Trim()
	assert.EqualValues(t, ValueCopies*100, b.Held())
	b.Return()
	assert.EqualValues(t, all, m.left)

	b.Reset(1 << 20)
	assert.Zero(t, b.Short())
	b.Grant(1000)
	assert.True(t, b.Take(500))
	assert.EqualValues(t, 1000, b.Held(), "what was granted is enough")
}

// fakeMeter is a Meter that takes values until it has taken so many bytes.
type fakeMeter struct{ left, taken int64 }

func (m *fakeMeter) Take(bytes int64) bool {
	if m.taken > m.left {
		return false
	}
	m.taken += bytes
	return true
}

func (m *fakeMeter) Give(bytes int64) { m.taken -= bytes }

func TestReadBudgetIsSpentWhenItsMeterRefuses(t *testing.T) {
	m := &fakeMeter{left: 10}
	b := NewReadBudget(100)
	b.Meter(m)
	require.True(t, b.Take(4))
	require.True(t, b.Take(8))
	assert.False(t, b.Take(1))
	assert.True(t, b.Spent(), "no further read is of use")
	assert.Zero(t, b.Short(), "it is not for lack of memory")
	assert.EqualValues(t, 12, m.taken)
	assert.EqualValues(t, 12, b.Settle())
	assert.Zero(t, b.Settle())

	b.ResetExact(10)
	m.taken = 0
	assert.False(t, b.Take(11))
	assert.Zero(t, m.taken, "a value that is too large is not counted")
	b.Reset(10)
	b.Meter(nil)
	require.True(t, b.Take(4))
	assert.True(t, b.Count(1000))
	assert.Zero(t, m.taken, "without a meter")
}

// Values that were read in vain are given back to the meter.
func TestReadBudgetGivesBackToItsMeter(t *testing.T) {
	m := &fakeMeter{left: 1 << 20}
	memory := &fakeMemory{left: 2 * memoryStep}
	b := NewReadBudget(1 << 20)
	b.Meter(m)
	b.Charge(memory)
	require.True(t, b.Take(10))
	mark := b.Mark()
	require.True(t, b.Take(20))
	b.Rewind(mark)
	assert.EqualValues(t, 10, m.taken)
	require.False(t, b.Take(memoryStep), "the memory has too little")
	assert.EqualValues(t, 10, m.taken)
	require.ErrorIs(t, b.AwaitAnew(t.Context()), ErrOverloaded)
	assert.Zero(t, m.taken, "the call reads all of it again")
	assert.Zero(t, b.Settle())
}

// What one value took is given back everywhere, and suffices for a value of the same size.
func TestReadBudgetTakesAgainWhatItWasGivenBack(t *testing.T) {
	const size = memoryStep
	meter, memory := &fakeMeter{left: size - 1}, &fakeMemory{left: ValueCopies * size}
	b := NewReadBudget(0)
	b.ResetExact(size)
	b.Meter(meter)
	b.Charge(memory)
	for range 3 {
		require.True(t, b.Take(size))
		assert.Zero(t, memory.left)
		assert.EqualValues(t, size, meter.taken)
		b.Give(size)
		assert.Zero(t, meter.taken)
	}
	assert.False(t, b.Spent())
	assert.Zero(t, b.Settle())
	b.Trim()
	assert.Zero(t, b.Held())
	assert.EqualValues(t, ValueCopies*size, memory.left)

	plain := NewReadBudget(10)
	plain.Give(5)
	assert.Zero(t, plain.spare.Load(), "without a memory")
	var none *ReadBudget
	none.Give(5)
}

// A dropped answer gives back the value that it has, and only that.
func TestADroppedLookupIsTheQuestionAgain(t *testing.T) {
	b := NewReadBudget(0)
	for _, l := range []Lookup{
		{Found: true, Value: []byte("value"), Version: 3, ReadVersion: 4},
		{Found: true, Omitted: true, Version: 3},
		{ReadVersion: 4},
		{Err: ErrBudgetSpent},
	} {
		b.ResetExact(5)
		require.True(t, b.Take(len(l.Value)))
		l.Key, l.Hash, l.Want, l.Budget = []byte("k"), 7, WantLength(5), b
		question := l.Question()
		l.Drop()
		assert.Equal(t, question, l)
		assert.True(t, b.Take(5))
	}
}
