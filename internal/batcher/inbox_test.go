package batcher

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func silent() {}

func TestCut(t *testing.T) {
	p := Policy{MaxOps: 4, MaxBytes: 100}
	for _, c := range []struct {
		name   string
		queued []size
		want   int
	}{
		{"one", []size{{1, 10}}, 1},
		{"up to the operations", []size{{2, 1}, {2, 1}, {1, 1}}, 2},
		{"up to the bytes", []size{{1, 60}, {1, 40}, {1, 1}}, 2},
		{"a large one is a batch of its own", []size{{9, 900}, {1, 1}}, 1},
		{"a large one is not added to others", []size{{1, 1}, {9, 900}}, 1},
	} {
		assert.Equal(t, c.want, p.cut(c.queued), c.name)
	}
}

func TestInboxKeepsOrderAndCuts(t *testing.T) {
	notified := 0
	b := NewInbox[int](Policy{MaxOps: 3}, func() { notified++ })
	for i := range 7 {
		require.NoError(t, b.put(t.Context(), i, 1, 1))
	}
	assert.Equal(t, 7, notified)
	var all []int
	for _, want := range []int{3, 3, 1, 0} {
		batch, again := b.Take(nil)
		assert.Len(t, batch, want)
		assert.Zero(t, again)
		all = append(all, batch...)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, all)
}

func TestInboxWithoutLingerNeverMakesALoneCallerWait(t *testing.T) {
	b := NewInbox[int](Policy{}, silent)
	require.NoError(t, b.put(t.Context(), 1, 1, 1))
	batch, _ := b.Take(nil)
	assert.Equal(t, []int{1}, batch)
}

func TestInboxLingersUntilFullOrLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 500 * time.Microsecond // the experiment of the article
		b := NewInbox[int](Policy{MaxOps: 2, Linger: linger}, silent)
		require.NoError(t, b.put(t.Context(), 1, 1, 1))
		time.Sleep(linger / 5)
		batch, again := b.Take(nil)
		assert.Empty(t, batch)
		assert.Equal(t, linger-linger/5, again)

		require.NoError(t, b.put(t.Context(), 2, 1, 1))
		batch, _ = b.Take(nil)
		assert.Equal(t, []int{1, 2}, batch, "a full batch does not wait")

		require.NoError(t, b.put(t.Context(), 3, 1, 1))
		time.Sleep(linger)
		batch, _ = b.Take(nil)
		assert.Equal(t, []int{3}, batch, "a late batch goes as it is")

		require.NoError(t, b.put(t.Context(), 4, 1, 1))
		b.Close()
		batch, _ = b.Take(nil)
		assert.Equal(t, []int{4}, batch, "B6: what is queued at the end is served, not lost")
	})
}

// put is Put of a caller that has not waited for another inbox.
func (b *Inbox[T]) put(ctx context.Context, item T, ops, bytes int) error {
	return b.Put(ctx, time.Now().Add(MaxQueueWait), item, ops, bytes)
}

func TestFullInboxWaitsForRoomThenSheds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[int](Policy{QueueBytes: 10}, silent)
		require.NoError(t, b.put(t.Context(), 1, 1, 10))

		begin := time.Now()
		err := b.put(t.Context(), 2, 1, 1)
		assert.ErrorIs(t, err, kv.ErrOverloaded)
		assert.Equal(t, MaxQueueWait, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		begin = time.Now()
		assert.ErrorIs(t, b.put(ctx, 3, 1, 1), context.DeadlineExceeded)
		assert.Equal(t, 20*time.Millisecond, time.Since(begin))

		begin = time.Now()
		assert.ErrorIs(t, b.Put(t.Context(), begin, 3, 1, 1), kv.ErrOverloaded)
		assert.Zero(t, time.Since(begin))

		done := make(chan error)
		go func() { done <- b.put(t.Context(), 4, 1, 10) }()
		synctest.Wait()
		batch, _ := b.Take(nil)
		assert.Equal(t, []int{1}, batch)
		require.NoError(t, <-done)
		batch, _ = b.Take(nil)
		assert.Equal(t, []int{4}, batch)
	})
}

func TestItemLargerThanTheBoundIsTakenAlone(t *testing.T) {
	b := NewInbox[int](Policy{QueueBytes: 10}, silent)
	require.NoError(t, b.put(t.Context(), 1, 1, 1000))
	batch, _ := b.Take(nil)
	assert.Equal(t, []int{1}, batch)
}

func TestRemoveTakesOnlyWhatIsStillQueued(t *testing.T) {
	b := NewInbox[int](Policy{MaxOps: 2}, silent)
	for i := range 3 {
		require.NoError(t, b.put(t.Context(), i, 1, 1))
	}
	assert.True(t, b.Remove(1))
	assert.False(t, b.Remove(1))
	batch, _ := b.Take(nil)
	assert.Equal(t, []int{0, 2}, batch)
	assert.False(t, b.Remove(0), "taken already")
	ops, bytes := b.Len()
	assert.Zero(t, ops+bytes)
}

func TestClosedInboxRefusesAlsoThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[int](Policy{QueueBytes: 1}, silent)
		require.NoError(t, b.put(t.Context(), 1, 1, 1))
		done := make(chan error)
		go func() { done <- b.put(t.Context(), 2, 1, 1) }()
		synctest.Wait()
		b.Close()
		b.Close()
		assert.ErrorIs(t, <-done, kv.ErrClosed)
		assert.ErrorIs(t, b.put(t.Context(), 3, 1, 1), kv.ErrClosed)
	})
}

// Promise 1: served once or refused, in every interleaving of callers and orchestrator.
func TestEveryItemIsServedOnceOrRefused(t *testing.T) {
	const callers, each = 16, 500
	wake := make(chan struct{}, 1)
	b := NewInbox[int](Policy{MaxOps: 7, QueueBytes: 64}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	var served [callers * each]int
	stop := make(chan struct{})
	var orchestrator, group sync.WaitGroup
	orchestrator.Go(func() {
		for {
			batch, _ := b.Take(nil)
			for _, i := range batch {
				served[i]++
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-stop:
				for batch, _ := b.Take(nil); len(batch) > 0; batch, _ = b.Take(batch[:0]) {
					for _, i := range batch {
						served[i]++
					}
				}
				return
			}
		}
	})
	var refused [callers * each]bool
	for c := range callers {
		group.Go(func() {
			for n := range each {
				i := c*each + n
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 0 {
					cancel() // if it is queued all the same, it is removed below
				}
				if err := b.put(ctx, i, 1, 3); err != nil {
					refused[i] = true
				} else if n%5 == 0 && b.Remove(i) {
					refused[i] = true
				}
				cancel()
			}
		})
	}
	group.Wait()
	close(stop)
	orchestrator.Wait()
	for i := range served {
		want := 1
		if refused[i] {
			want = 0
		}
		require.Equal(t, want, served[i], "item %d", i)
	}
}
