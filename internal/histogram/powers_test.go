package histogram

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPowersCountEachNumberInTheLeastBucketThatHoldsIt(t *testing.T) {
	for n, want := range map[uint64]int{
		0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 1 << 20: 20, 1<<20 + 1: 21, 1 << 30: 30, 1<<30 + 1: 31, math.MaxUint64: 31,
	} {
		var p Powers
		p.Record(n)
		var one PowerCounts
		one.Record(n)
		c := p.Counts()
		assert.Equal(t, one, c)
		assert.EqualValues(t, 1, c.Buckets[want], n)
		assert.EqualValues(t, 1, c.Count())
		assert.Equal(t, n, c.Sum)
	}
}

func TestPowersLoseNothing(t *testing.T) {
	const recorders, each = 4, 10_000
	var p Powers
	var wg sync.WaitGroup
	for range recorders {
		wg.Go(func() {
			for i := range uint64(each) {
				p.Record(i)
			}
		})
	}
	wg.Wait()
	c := p.Counts()
	assert.EqualValues(t, recorders*each, c.Count())
	assert.EqualValues(t, recorders*each*(each-1)/2, c.Sum)
	twice := c
	twice.Add(&c)
	assert.Equal(t, 2*c.Count(), twice.Count())
	assert.Equal(t, 2*c.Sum, twice.Sum)
}
