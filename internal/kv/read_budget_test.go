package kv

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
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
