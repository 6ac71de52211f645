package batcher

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInboxMeasuresTheWaitOfTheFirstOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[int](Policy{MaxOps: 2}, silent)
		put := func() { require.NoError(t, b.put(t.Context(), 1, 1, 1)) }
		put()
		time.Sleep(3 * time.Millisecond)
		put()
		put()
		b.Take(nil)
		assert.EqualValues(t, 3000, b.Waits().Sum)
		for range SampleEvery - 1 { // one of these batches consists of the item left over
			time.Sleep(time.Hour)
			b.Take(nil)
			put()
		}
		assert.EqualValues(t, 1, b.Waits().Count(), "the others are not measured")

		time.Sleep(5 * time.Millisecond)
		b.Take(nil)
		assert.EqualValues(t, 2, b.Waits().Count())
		assert.EqualValues(t, 8000, b.Waits().Sum)

		for range SampleEvery {
			time.Sleep(time.Hour)
			b.Take([]int{1}) // a batch of an item that did not queue
		}
		assert.EqualValues(t, 3, b.Waits().Count(), "which did not wait, and counts")
		assert.EqualValues(t, 8000, b.Waits().Sum)

		b.Take(nil)
		assert.EqualValues(t, 3, b.Waits().Count(), "nothing is no batch")
	})
}

// The wait of an item that a sampled batch leaves over is measured at least from then
// on.
func TestInboxMeasuresWhatWasLeftOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[int](Policy{MaxOps: 1}, silent)
		for range SampleEvery + 1 {
			require.NoError(t, b.put(t.Context(), 1, 1, 1))
		}
		for range SampleEvery {
			b.Take(nil)
		}
		time.Sleep(time.Millisecond)
		b.Take(nil)
		assert.EqualValues(t, 2, b.Waits().Count())
		assert.EqualValues(t, 1000, b.Waits().Sum)
	})
}

func TestCombinerMeasuresTheWaitOfTheFirstOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work = 8 * time.Millisecond
		var sizes []int
		c := NewCombiner(Policy{}, 1, func(b []int) { time.Sleep(work); sizes = append(sizes, len(b)) })
		do := func() { assert.NoError(t, c.Do(context.Background(), 1, 1, 1)) }
		for range SampleEvery {
			do()
		}
		assert.EqualValues(t, 1, c.Waits().Count())
		assert.Zero(t, c.Waits().Sum)

		// One caller is being served and is a sample; the next sample is the first that
		// queues.
		for range 2 * SampleEvery {
			do()
		}
		assert.EqualValues(t, 3, c.Waits().Count())
		sampleNext(c)
		var all sync.WaitGroup
		all.Go(do)
		synctest.Wait()
		assert.EqualValues(t, 4, c.Waits().Count())
		sampleNext(c)
		time.Sleep(work / 4)
		for range 3 {
			all.Go(do)
			synctest.Wait()
			time.Sleep(work / 8)
		}
		all.Wait()
		assert.Equal(t, []int{1, 3}, sizes[len(sizes)-2:])
		assert.EqualValues(t, 5, c.Waits().Count())
		assert.EqualValues(t, (work - work/4).Microseconds(), c.Waits().Sum)
	})
}

// sampleNext makes the wait of the next caller be measured.
func sampleNext(c *Combiner[int]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sample = 0
}

func TestCombinerSamplesAnotherWhenTheSampleIsNotTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		c := NewCombiner(Policy{MaxOps: 2, Linger: time.Millisecond}, 1, func(b []int) { sizes = append(sizes, len(b)) })
		c.mu.sample = 1
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { assert.NoError(t, c.Do(context.Background(), 1, 1, 1)) })
			synctest.Wait()
			sampleNext(c) // for the caller that joins the lingering leader
		}
		all.Wait()
		assert.Equal(t, []int{2}, sizes)
		assert.Zero(t, c.Waits().Count())
		assert.NoError(t, c.Do(context.Background(), 1, 1, 1))
		assert.EqualValues(t, 1, c.Waits().Count())
		assert.EqualValues(t, 1000, c.Waits().Sum, "it lingered")
	})
}
