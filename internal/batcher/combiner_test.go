package batcher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoneCallerServesItselfAtOnce(t *testing.T) {
	var batches [][]int
	c := NewCombiner(Policy{}, 1, func(b []int) { batches = append(batches, append([]int(nil), b...)) })
	for i := range 3 {
		require.NoError(t, c.Do(t.Context(), i, 1, 1))
	}
	assert.Equal(t, [][]int{{0}, {1}, {2}}, batches)
}

// Callers that arrive while a batch is served form the next batch, up to the cap.
func TestCallersThatQueueAreServedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var mu sync.Mutex
		var sizes []int
		c := NewCombiner(Policy{MaxOps: 4}, 1, func(b []int) {
			<-gate
			mu.Lock()
			sizes = append(sizes, len(b))
			mu.Unlock()
		})
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), i, 1, 1)) })
			synctest.Wait() // each caller is queued before the next arrives
		}
		close(gate)
		group.Wait()
		assert.Equal(t, []int{1, 4, 4, 1}, sizes)
	})
}

func TestRunnersWorkSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var at atomic.Int32
		c := NewCombiner(Policy{}, 2, func([]int) { at.Add(1); <-gate })
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), i, 1, 1)) })
		}
		synctest.Wait()
		assert.EqualValues(t, 2, at.Load(), "two at work, three in line")
		close(gate)
		group.Wait()
	})
}

func TestCallerThatGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var served []int
		c := NewCombiner(Policy{}, 1, func(b []int) { <-gate; served = append(served, b...) })
		var group sync.WaitGroup
		group.Go(func() { assert.NoError(t, c.Do(context.Background(), 0, 1, 1)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		group.Go(func() { assert.ErrorIs(t, c.Do(ctx, 1, 1, 1), context.DeadlineExceeded) })
		synctest.Wait()
		group.Go(func() { assert.NoError(t, c.Do(context.Background(), 2, 1, 1)) })
		time.Sleep(time.Second)
		synctest.Wait()
		close(gate)
		group.Wait()
		assert.Equal(t, []int{0, 2}, served, "its batch-mates do not notice")
	})
}

func TestCombinerLingersWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 500 * time.Microsecond
		var sizes []int
		c := NewCombiner(Policy{MaxOps: 3, Linger: linger}, 1, func(b []int) { sizes = append(sizes, len(b)) })

		begin := time.Now()
		require.NoError(t, c.Do(t.Context(), 0, 1, 1))
		assert.Equal(t, linger, time.Since(begin), "B2: a lone request returns within the delay")

		var group sync.WaitGroup
		begin = time.Now()
		for i := range 3 {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), i, 1, 1)) })
		}
		group.Wait()
		assert.Zero(t, time.Since(begin), "a full batch does not wait")
		assert.Equal(t, []int{1, 3}, sizes)
	})
}

// batchSizes notes the sizes of batches.
type batchSizes struct {
	mu    sync.Mutex
	sizes []int
}

func (s *batchSizes) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, n)
}

func (s *batchSizes) all() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

// Callers that arrive while a leader lingers join its batch, also if another batch could be
// served beside it.
func TestALingeringLeaderIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes batchSizes
		c := NewCombiner(Policy{MaxOps: 4, Linger: time.Second}, 2, func(b []int) {
			sizes.add(len(b))
			time.Sleep(time.Minute)
		})
		var group sync.WaitGroup
		arrive := func(n int) {
			for i := range n {
				group.Go(func() { assert.NoError(t, c.Do(context.Background(), i, 1, 1)) })
				synctest.Wait()
			}
		}
		arrive(3)
		assert.Empty(t, sizes.all())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []int{3}, sizes.all(), "the linger ends")

		arrive(4)
		assert.Equal(t, []int{3, 4}, sizes.all(), "a full batch does not wait, and is served beside the first")

		arrive(6)
		time.Sleep(time.Minute - 2*time.Second) // the second batch ends after the first
		arrive(1)
		group.Wait()
		assert.Equal(t, []int{3, 4, 4, 3}, sizes.all())
		assert.Zero(t, c.mu.running)
	})
}

// A batch that ends takes no items from one that is being filled.
func TestALingeringLeaderKeepsItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes batchSizes
		c := NewCombiner(Policy{MaxOps: 8, Linger: time.Second}, 2, func(b []int) {
			sizes.add(len(b))
			time.Sleep(1500 * time.Millisecond)
		})
		var group sync.WaitGroup
		arrive := func() {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), 0, 1, 1)) })
			synctest.Wait()
		}
		arrive() // served from 1 s to 2.5 s
		time.Sleep(2 * time.Second)
		arrive() // lingers until 3 s
		arrive()
		time.Sleep(750 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []int{1}, sizes.all(), "the first batch has ended")
		arrive()
		group.Wait()
		assert.Equal(t, []int{1, 3}, sizes.all())
	})
}

// What does not fit into a full batch leads the next one at once.
func TestTheRestOfAFullBatchIsLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes batchSizes
		c := NewCombiner(Policy{MaxOps: 4, Linger: time.Second}, 2, func(b []int) {
			sizes.add(len(b))
			time.Sleep(time.Minute)
		})
		var group sync.WaitGroup
		began := time.Now()
		for _, ops := range []int{1, 4} { // the second fills the batch and does not fit
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), 0, ops, 1)) })
			synctest.Wait()
		}
		assert.Equal(t, []int{1, 1}, sizes.all())
		assert.Zero(t, time.Since(began))
		group.Wait()
		assert.Zero(t, c.mu.running)
	})
}

// The owner changes how many batches are served at a time, and how large they are.
func TestMoreRunnersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			policy Policy
			sizes  []int
		}{
			"adaptive":       {Policy{}, []int{1, 2, 2, 2}},
			"fixed size":     {Policy{MaxOps: 3}, []int{1, 3, 3}},
			"fixed runners":  {Policy{Runners: 1}, []int{1, 2, 4}},
			"fixed for both": {Policy{Runners: 1, MaxOps: 6}, []int{1, 6}},
		} {
			var sizes batchSizes
			gate := make(chan struct{})
			c := NewCombiner(test.policy, 1, func(b []int) {
				sizes.add(len(b))
				<-gate
			})
			var group sync.WaitGroup
			for range 7 {
				group.Go(func() { assert.NoError(t, c.Do(context.Background(), 0, 1, 1)) })
				synctest.Wait()
			}
			c.Allow(3, 2)
			gate <- struct{}{}
			synctest.Wait()
			if test.policy.Runners == 0 {
				assert.Equal(t, test.sizes, sizes.all(), "%s: what a batch leaves is led by a free runner", name)
			} else {
				assert.Len(t, sizes.all(), 2, name)
			}
			c.Allow(1, 0)
			close(gate)
			group.Wait()
			assert.Equal(t, test.sizes, sizes.all(), name)
			assert.Zero(t, c.mu.running, name)
		}
	})
}

// Runners beyond the allowed number end, and are not replaced.
func TestFewerRunnersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var busy atomic.Int32
		c := NewCombiner(Policy{MaxOps: 1}, 3, func([]int) {
			busy.Add(1)
			<-gate
			busy.Add(-1)
		})
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), 0, 1, 1)) })
		}
		synctest.Wait()
		assert.EqualValues(t, 3, busy.Load())
		c.Allow(1, 0)
		for _, want := range []int32{2, 1, 1, 1} {
			gate <- struct{}{}
			synctest.Wait()
			assert.Equal(t, want, busy.Load())
		}
		close(gate)
		group.Wait()
	})
}

func TestEachCallerServesItselfWithoutBatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches atomic.Int32
		c := NewCombiner(Policy{Alone: true}, 1, func(b []int) {
			assert.Len(t, b, 1)
			batches.Add(1)
			time.Sleep(time.Second)
		})
		began := time.Now()
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { assert.NoError(t, c.Do(context.Background(), 1, 1, 1)) })
		}
		group.Wait()
		assert.EqualValues(t, 20, batches.Load())
		assert.Equal(t, time.Second, time.Since(began), "none waits for another")
	})
}

func TestEveryCallerIsServedOnceUnderLoad(t *testing.T) {
	for _, linger := range []time.Duration{0, 20 * time.Microsecond} {
		t.Run(linger.String(), func(t *testing.T) { everyCallerIsServedOnce(t, linger) })
	}
}

func everyCallerIsServedOnce(t *testing.T, linger time.Duration) {
	const callers, each = 32, 400
	var served [callers * each]atomic.Int32
	var busy, most atomic.Int32
	c := NewCombiner(Policy{MaxOps: 8, Linger: linger}, 2, func(b []int) {
		most.Store(max(most.Load(), busy.Add(1)))
		for _, i := range b {
			served[i].Add(1)
		}
		busy.Add(-1)
	})
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for n := range each {
				i := caller*each + n
				ctx, cancel := context.WithCancel(context.Background())
				if n%7 == 0 {
					go cancel()
				}
				err := c.Do(ctx, i, 1, 1)
				want := int32(1)
				if err != nil {
					want = 0
				}
				assert.Equal(t, want, served[i].Load(), "item %d, error %v", i, err)
				cancel()
			}
		})
	}
	group.Wait()
	assert.LessOrEqual(t, most.Load(), int32(2))
	assert.Zero(t, c.mu.running, "every runner's place was given up")
	assert.Empty(t, c.mu.queue)
}

func BenchmarkCombiner(b *testing.B) {
	c := NewCombiner(Policy{}, 2, func([]int) {})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := c.Do(context.Background(), 1, 1, 1); err != nil {
				b.Error(err)
			}
		}
	})
}
