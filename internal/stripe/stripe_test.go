package stripe

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Goroutines that are alive have stacks of their own.
func TestGoroutinesUseSeveralStripes(t *testing.T) {
	const bits = 4
	var indexes [64]uint64
	var all, asked sync.WaitGroup
	asked.Add(len(indexes))
	for i := range indexes {
		all.Go(func() {
			indexes[i] = Index(bits)
			asked.Done()
			asked.Wait()
		})
	}
	all.Wait()
	used := make(map[uint64]bool)
	for _, i := range indexes {
		assert.Less(t, i, uint64(1)<<bits)
		used[i] = true
	}
	assert.Greater(t, len(used), 1)
}
