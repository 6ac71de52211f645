package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// S1: whatever the order in which partitions apply, visible is the highest
// number without a gap below it.
func TestVisibleHasNoGapBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSequencer(nil, nil)
		s.start(100)
		var records []seqRange
		next := kv.SeqNum(101)
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			units := kv.SeqNum(rapid.IntRange(1, 5).Draw(t, "units"))
			records = append(records, seqRange{next, next + units})
			next += units
		}
		applied := make(map[kv.SeqNum]bool)
		for _, r := range rapid.Permutation(records).Draw(t, "order") {
			before := s.Visible()
			s.Applied(r.from, uint32(r.to-r.from))
			for seq := r.from; seq < r.to; seq++ {
				applied[seq] = true
			}
			want := kv.SeqNum(100)
			for applied[want+1] {
				want++
			}
			if got := s.Visible(); got != want || got < before {
				t.Fatalf("visible is %d after %d, want %d", got, before, want)
			}
		}
		if len(s.ahead) != 0 {
			t.Fatalf("%d ranges left", len(s.ahead))
		}
	})
}

func TestWaitVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan struct{})
		cause := errors.New("log failed")
		s := newSequencer(failed, func() error { return cause })
		s.start(10)
		require.NoError(t, s.WaitVisible(t.Context(), 10))

		done := make(chan error)
		go func() { done <- s.WaitVisible(context.Background(), 12) }()
		synctest.Wait()
		s.Applied(12, 1)
		s.Applied(11, 1)
		require.NoError(t, <-done)

		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.WaitVisible(ctx, 99) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)

		go func() { done <- s.WaitVisible(context.Background(), 99) }()
		synctest.Wait()
		close(failed)
		require.ErrorIs(t, <-done, cause)
	})
}

func TestSnapshotsAreTheLiveOnesAndTheNext(t *testing.T) {
	s := newSequencer(nil, nil)
	s.start(5)
	assert.Equal(t, []kv.SeqNum{5}, s.Snapshots())
	first := s.acquire()
	again := s.acquire()
	s.Applied(6, 4)
	assert.Equal(t, []kv.SeqNum{5, 9}, s.Snapshots())
	assert.Equal(t, 2, s.open())
	s.release(first)
	assert.Equal(t, []kv.SeqNum{5, 9}, s.Snapshots(), "somebody else reads there")
	s.release(again)
	assert.Equal(t, []kv.SeqNum{9}, s.Snapshots())
	assert.Zero(t, s.open())
}
